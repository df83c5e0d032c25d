"""The roles and bindings of a new cluster: upstream's of Kubernetes 1.36, and those of podwire's components.

A role is a line with its name (of a namespaced one, NAMESPACE/NAME); its rules are the indented lines below, which may
go on in lines that are indented further:

    VERBS GROUPS: RESOURCES @NAMES          VERBS urls: PATHS

`core` is the group without a name; `read`, `write`, `readwrite` and `readupdate` are sets of verbs. The roles of
controllers are in `controller_roles.py`.
"""

AGGREGATED = {
    "admin": ("aggregate-to-admin", ""),
    "edit": ("aggregate-to-edit", "aggregate-to-admin"),
    "view": ("aggregate-to-view", "aggregate-to-edit"),
}
"""Roles without rules of their own: the label of the roles that they consist of, and the label that they have."""

CLUSTER_ROLES = """
cluster-admin
  * *: *
  * urls: *
system:aggregate-to-admin
  create authorization.k8s.io: localsubjectaccessreviews
  readwrite rbac.authorization.k8s.io: rolebindings roles
system:aggregate-to-edit
  read core: pods/attach pods/exec pods/portforward pods/proxy secrets services/proxy
  impersonate core: serviceaccounts
  write core: pods pods/attach pods/exec pods/portforward pods/proxy
  create core: pods/eviction
  write core: configmaps persistentvolumeclaims replicationcontrollers replicationcontrollers/scale secrets
      serviceaccounts services services/proxy
  create core: serviceaccounts/token
  write core,events.k8s.io: events
  write apps: daemonsets deployments deployments/rollback deployments/scale replicasets replicasets/scale
      statefulsets statefulsets/scale
  write autoscaling: horizontalpodautoscalers
  write batch: cronjobs jobs
  write extensions: daemonsets deployments deployments/rollback deployments/scale ingresses networkpolicies
      replicasets replicasets/scale replicationcontrollers/scale
  write policy: poddisruptionbudgets
  write networking.k8s.io: ingresses networkpolicies
  readwrite coordination.k8s.io: leases
  write resource.k8s.io: resourceclaims resourceclaimtemplates
system:aggregate-to-view
  read core: configmaps endpoints persistentvolumeclaims persistentvolumeclaims/status pods replicationcontrollers
      replicationcontrollers/scale serviceaccounts services services/status
  read core: bindings limitranges namespaces/status pods/log pods/status replicationcontrollers/status
      resourcequotas resourcequotas/status
  read core: namespaces
  read core,events.k8s.io: events
  read discovery.k8s.io: endpointslices
  read apps: controllerrevisions daemonsets daemonsets/status deployments deployments/scale deployments/status
      replicasets replicasets/scale replicasets/status statefulsets statefulsets/scale statefulsets/status
  read autoscaling: horizontalpodautoscalers horizontalpodautoscalers/status
  read batch: cronjobs cronjobs/status jobs jobs/status
  read extensions: daemonsets daemonsets/status deployments deployments/scale deployments/status ingresses
      ingresses/status networkpolicies replicasets replicasets/scale replicasets/status replicationcontrollers/scale
  read policy: poddisruptionbudgets poddisruptionbudgets/status
  read networking.k8s.io: ingresses ingresses/status networkpolicies
  read resource.k8s.io: resourceclaims resourceclaims/status resourceclaimtemplates
system:aggregated-metrics-reader
  read metrics.k8s.io: nodes pods
system:auth-delegator
  create authentication.k8s.io: tokenreviews
  create authorization.k8s.io: subjectaccessreviews
system:basic-user
  create authorization.k8s.io: selfsubjectaccessreviews selfsubjectrulesreviews
  create authentication.k8s.io: selfsubjectreviews
system:certificates.k8s.io:certificatesigningrequests:nodeclient
  create certificates.k8s.io: certificatesigningrequests/nodeclient
system:certificates.k8s.io:certificatesigningrequests:selfnodeclient
  create certificates.k8s.io: certificatesigningrequests/selfnodeclient
system:certificates.k8s.io:kube-apiserver-client-approver
  approve certificates.k8s.io: signers @kubernetes.io/kube-apiserver-client
system:certificates.k8s.io:kube-apiserver-client-kubelet-approver
  approve certificates.k8s.io: signers @kubernetes.io/kube-apiserver-client-kubelet
system:certificates.k8s.io:kubelet-serving-approver
  approve certificates.k8s.io: signers @kubernetes.io/kubelet-serving
system:certificates.k8s.io:legacy-unknown-approver
  approve certificates.k8s.io: signers @kubernetes.io/legacy-unknown
system:discovery
  get urls: /api /api/* /apis /apis/* /healthz /livez /openapi /openapi/* /readyz /version /version/
system:heapster
  read core: events namespaces nodes pods
  read extensions: deployments
system:kube-aggregator
  read core: endpoints services
system:kube-controller-manager
  create,patch,update core,events.k8s.io: events
  create coordination.k8s.io: leases
  get,update coordination.k8s.io: leases @kube-controller-manager
  create core: secrets serviceaccounts
  delete core: secrets
  get core: configmaps namespaces secrets serviceaccounts
  update core: secrets serviceaccounts
  create authentication.k8s.io: tokenreviews
  create authorization.k8s.io: subjectaccessreviews
  list,watch *: *
  create core: serviceaccounts/token
system:kube-dns
  list,watch core: endpoints services
system:kube-scheduler
  create,patch,update core,events.k8s.io: events
  create coordination.k8s.io: leases
  get,list,update,watch coordination.k8s.io: leases @kube-scheduler
  readwrite coordination.k8s.io: leasecandidates
  read core: nodes
  delete,get,list,watch core: pods
  create core: bindings pods/binding
  patch,update core: pods/status
  read core: replicationcontrollers services
  read apps,extensions: replicasets
  read apps: statefulsets
  read policy: poddisruptionbudgets
  read core: persistentvolumeclaims persistentvolumes
  create authentication.k8s.io: tokenreviews
  create authorization.k8s.io: subjectaccessreviews
  read storage.k8s.io: csinodes
  read storage.k8s.io: volumeattachments
  read core: namespaces
  read storage.k8s.io: csidrivers
  read storage.k8s.io: csistoragecapacities
  read resource.k8s.io: deviceclasses
  readupdate resource.k8s.io: resourceclaims
  readupdate resource.k8s.io: resourceclaims/status
  update core: pods/finalizers
  read resource.k8s.io: resourceslices
  create,delete resource.k8s.io: resourceclaims
  patch,update resource.k8s.io: resourceclaims/binding
  read resource.k8s.io: devicetaintrules
system:kubelet-api-admin
  read core: nodes
  proxy core: nodes
  * core: nodes/log nodes/metrics nodes/proxy nodes/stats
  * core: nodes/configz nodes/healthz nodes/pods
system:monitoring
  get urls: /flagz /healthz /healthz/* /livez /livez/* /metrics /metrics/slis /readyz /readyz/* /statusz
  get core: nodes/metrics
system:node
  create authentication.k8s.io: tokenreviews
  create authorization.k8s.io: localsubjectaccessreviews subjectaccessreviews
  read core: services
  create,get,list,watch core: nodes
  patch,update core: nodes/status
  patch,update core: nodes
  create,patch,update core,events.k8s.io: events
  read core: pods
  create,delete core: pods
  patch,update core: pods/status
  create core: pods/eviction
  read core: configmaps secrets
  get core: persistentvolumeclaims persistentvolumes
  get core: endpoints
  create,get,list,watch certificates.k8s.io: certificatesigningrequests
  create,delete,get,patch,update coordination.k8s.io: leases
  get storage.k8s.io: volumeattachments
  create core: serviceaccounts/token
  get,patch,update core: persistentvolumeclaims/status
  read storage.k8s.io: csidrivers
  create,delete,get,patch,update storage.k8s.io: csinodes
  read node.k8s.io: runtimeclasses
  get resource.k8s.io: resourceclaims
  deletecollection resource.k8s.io: resourceslices
  get core: serviceaccounts
system:node-bootstrapper
  create,get,list,watch certificates.k8s.io: certificatesigningrequests
system:node-problem-detector
  get core: nodes
  patch core: nodes/status
  create,patch,update core,events.k8s.io: events
system:node-proxier
  list,watch core: endpoints services
  read core: nodes
  create,patch,update core,events.k8s.io: events
  list,watch networking.k8s.io: servicecidrs
  list,watch discovery.k8s.io: endpointslices
system:persistent-volume-provisioner
  create,delete,get,list,watch core: persistentvolumes
  get,list,update,watch core: persistentvolumeclaims
  read storage.k8s.io: storageclasses
  watch core: events
  create,patch,update core,events.k8s.io: events
system:public-info-viewer
  get urls: /healthz /livez /readyz /version /version/
system:service-account-issuer-discovery
  get urls: /.well-known/openid-configuration /.well-known/openid-configuration/ /openid/v1/jwks /openid/v1/jwks/
system:volume-scheduler
  readupdate core: persistentvolumes
  read storage.k8s.io: storageclasses
  readupdate core: persistentvolumeclaims
"""

ROLES = """
kube-public/system:controller:bootstrap-signer
  read core: configmaps
  update core: configmaps @cluster-info
  create,patch,update core,events.k8s.io: events
kube-system/extension-apiserver-authentication-reader
  read core: configmaps @extension-apiserver-authentication
kube-system/system::leader-locking-kube-controller-manager
  create,get,list,update,watch coordination.k8s.io: leases
  create,get,list,update,watch coordination.k8s.io: leasecandidates
kube-system/system::leader-locking-kube-scheduler
  create,get,list,update,watch coordination.k8s.io: leases
  create,get,list,update,watch coordination.k8s.io: leasecandidates
kube-system/system:controller:bootstrap-signer
  read core: secrets
kube-system/system:controller:cloud-provider
  create,get,list,watch core: configmaps
kube-system/system:controller:token-cleaner
  delete,get,list,watch core: secrets
  create,patch,update core,events.k8s.io: events
kube-system/system:podwire:dns
  read core: configmaps @kube-dns
  create,get core: services
  create,delete,get discovery.k8s.io: endpointslices
"""

CLUSTER_BINDINGS = """
cluster-admin: group:system:masters
system:basic-user: group:system:authenticated
system:discovery: group:system:authenticated
system:kube-controller-manager: user:system:kube-controller-manager
system:kube-dns: account:kube-system/kube-dns
system:kube-scheduler: user:system:kube-scheduler
system:monitoring: group:system:monitoring
system:node:
system:node-proxier: user:system:kube-proxy
system:public-info-viewer: group:system:authenticated group:system:unauthenticated
system:service-account-issuer-discovery: group:system:serviceaccounts
system:volume-scheduler: user:system:kube-scheduler
"""
"""Bindings to the ClusterRoles of the same name. Nodes have no subject: the node authorizer decides about them."""

BINDINGS = """
kube-public/system:controller:bootstrap-signer: account:kube-system/bootstrap-signer
kube-system/system::extension-apiserver-authentication-reader=extension-apiserver-authentication-reader:
    user:system:kube-controller-manager user:system:kube-scheduler
kube-system/system::leader-locking-kube-controller-manager: user:system:kube-controller-manager
    account:kube-system/kube-controller-manager account:kube-system/leader-election-controller
kube-system/system::leader-locking-kube-scheduler: user:system:kube-scheduler account:kube-system/kube-scheduler
kube-system/system:controller:bootstrap-signer: account:kube-system/bootstrap-signer
kube-system/system:controller:cloud-provider: account:kube-system/cloud-provider
kube-system/system:controller:token-cleaner: account:kube-system/token-cleaner
kube-system/system:podwire:dns: user:system:podwire:dns
"""
"""Bindings within a namespace, to the Role of the same name unless another follows after `=`."""

COMPONENT_ROLES = """
system:podwire:controllers
  read *: *
  escalate rbac.authorization.k8s.io: clusterroles
  delete,deletecollection,patch *: *
  create core: configmaps serviceaccounts pods persistentvolumeclaims
  update core: pods persistentvolumeclaims replicationcontrollers replicationcontrollers/status
  create,update core: persistentvolumes
  update core: persistentvolumes/status persistentvolumeclaims/status
  create storage.k8s.io: volumeattachments
  create,update apps: controllerrevisions replicasets
  create,update coordination.k8s.io: leases
  update certificates.k8s.io: certificatesigningrequests/approval certificatesigningrequests/status
  approve,sign certificates.k8s.io: signers
  create authorization.k8s.io: subjectaccessreviews
  update core: configmaps secrets
  create batch: jobs
  update policy: poddisruptionbudgets/status
  update autoscaling: horizontalpodautoscalers/status
  create,update core: endpoints endpoints/restricted
  create,update discovery.k8s.io: endpointslices endpointslices/restricted
  update core: services services/status services/finalizers endpoints/finalizers
  update batch: jobs/status cronjobs/status jobs/finalizers cronjobs/finalizers
  update apps: daemonsets daemonsets/status deployments deployments/status replicasets/status statefulsets
      statefulsets/status
  create,patch,update core,events.k8s.io: events
  update core: namespaces/finalize namespaces/status resourcequotas/status
  patch,update core: nodes nodes/status pods/status
  update core: pods/finalizers
  update apiextensions.k8s.io: customresourcedefinitions customresourcedefinitions/status
  update networking.k8s.io: servicecidrs servicecidrs/status
  create resource.k8s.io: resourceclaims
  patch,update resource.k8s.io: resourceclaims resourceclaims/status resourceclaims/binding devicetaintrules/status
system:podwire:dns
  list,watch core: namespaces services
  list,watch discovery.k8s.io: endpointslices
system:podwire:gpu-driver
  create,get,list,update,watch resource.k8s.io: resourceslices
  create resource.k8s.io: deviceclasses
  get resource.k8s.io: resourceclaims
  read core: nodes
system:podwire:local-path
  read core: persistentvolumes
  patch core: persistentvolumes
  create,patch core,events.k8s.io: events
system:podwire:network-driver
  create,delete,get,list,update,watch resource.k8s.io: resourceslices
  get resource.k8s.io: resourceclaims
  patch resource.k8s.io: resourceclaims/status
  associated-node:patch,associated-node:update resource.k8s.io: resourceclaims/driver @net.podwire.dev
  get core: nodes pods
  create,patch core,events.k8s.io: events
system:podwire:nri-network
  read core: namespaces nodes pods
  read networking.k8s.io: networkpolicies
  read policy.networking.k8s.io: adminnetworkpolicies baselineadminnetworkpolicies
  read discovery.k8s.io: endpointslices
  read apiextensions.k8s.io: customresourcedefinitions
  read net.podwire.dev: podmeshes podroutes
  patch net.podwire.dev: podmeshes/status podroutes/status
  create,patch core,events.k8s.io: events
"""
"""Components that `podwire up` starts, each with a certificate of its own."""

COMPONENT_BINDINGS = """
system:kubelet-api-admin: user:kube-apiserver-kubelet-client
system:podwire:controllers: user:system:podwire:controllers
system:podwire:dns: user:system:podwire:dns
system:podwire:gpu-driver: group:system:podwire:gpu-driver
system:podwire:local-path: group:system:podwire:local-path
system:podwire:network-driver: group:system:podwire:network-driver
system:podwire:nri-network: group:system:podwire:nri-network
"""
