"""CSI volumes: drivers register at the kubelet, which has them stage and publish volumes for its pods.

    plugins/kubernetes.io/csi/DRIVER/SHA256/globalmount    a staged volume, once for the node; SHA256 is of its handle
    plugins/kubernetes.io/csi/DRIVER/SHA256/vol_data.json  its driver and handle
    pods/UID/volumes/kubernetes.io~csi/NAME/mount          a published volume, for one pod
    pods/UID/volumes/kubernetes.io~csi/NAME/vol_data.json  its driver, handle, node, lifecycle mode

These are the stock kubelet's paths and files. A file is written before its driver is called, and removed after the
driver has undone the call: whatever a killed kubelet leaves is found by its file, and undone by the next one. Every
call is repeated after a failure; drivers answer repeated calls as the first.
"""
