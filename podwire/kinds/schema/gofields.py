"""Facts about Go fields that the definitions lack: pointers and omitempty, which decide when the server shows a field.

The rule, for a property without a row here: it is left out when empty exactly if it is not required; an object is
always there (if only as `{}`) when it is required or called metadata, spec or status, and may be absent otherwise;
numbers, strings and booleans are empty when zero. A row lists the exceptions of one definition:

    name    an object that is always there          *name   a scalar whose zero is a value: `replicas: 0` stays
    ^name   an object that may be absent            +name   shown even when empty or not given
                                                    -name   left out when empty although required
"""

from dataclasses import dataclass

_DEVICES = """
    AllocatedDeviceStatus: +conditions *shareID
    AllocationResult: devices
    CounterSet: -counters
    DeviceAttribute: *bool *int *string *version
    DeviceClaim: +requests
    DeviceClassSpec: *extendedResourceName
    DeviceConstraint: *distinctAttribute *matchAttribute
    DeviceCounterConsumption: -counters
    DeviceRequestAllocationResult: *adminAccess *shareID
    DeviceToleration: *tolerationSeconds
    NodeAllocatableResourceMapping: *capacityKey
    ResourceClaimSpec: devices
    ResourceSliceSpec: *allNodes *nodeName *perDeviceNodeSelection
"""
"""Rows of resource.k8s.io that its versions share."""

_ROWS = {
    "api.admissionregistration.v1": """
        MatchResources: *matchPolicy
        MutatingAdmissionPolicySpec: *failurePolicy
        MutatingWebhook: *failurePolicy *matchPolicy *reinvocationPolicy *sideEffects *timeoutSeconds
        NamedRuleWithOperations: *scope
        ParamRef: *parameterNotFoundAction
        RuleWithOperations: *scope
        ServiceReference: *path *port
        ValidatingAdmissionPolicyBindingSpec: -policyName -validationActions
        ValidatingAdmissionPolicySpec: *failurePolicy
        ValidatingWebhook: *failurePolicy *matchPolicy *sideEffects *timeoutSeconds
        Validation: *reason
        WebhookClientConfig: *url
    """,
    "api.apps.v1": """
        DaemonSetSpec: *revisionHistoryLimit ^selector updateStrategy
        DaemonSetStatus: *collisionCount
        DeploymentSpec: *progressDeadlineSeconds *replicas *revisionHistoryLimit ^selector strategy
        DeploymentStatus: *collisionCount *terminatingReplicas
        ReplicaSetSpec: *replicas ^selector template
        ReplicaSetStatus: *terminatingReplicas
        RollingUpdateStatefulSetStrategy: *partition
        StatefulSetOrdinals: +start
        StatefulSetSpec: *replicas *revisionHistoryLimit ^selector +serviceName updateStrategy
        StatefulSetStatus: +availableReplicas *collisionCount
    """,
    "api.authentication.v1": """
        SelfSubjectReviewStatus: userInfo
        TokenRequestSpec: +audiences *expirationSeconds
        TokenRequestStatus: +token
        TokenReviewSpec: -token
        TokenReviewStatus: user
    """,
    "api.autoscaling.v1": """
        HorizontalPodAutoscalerSpec: *minReplicas *targetCPUUtilizationPercentage
        HorizontalPodAutoscalerStatus: *currentCPUUtilizationPercentage *observedGeneration
    """,
    "api.autoscaling.v2": """
        HPAScalingRules: *selectPolicy *stabilizationWindowSeconds
        HorizontalPodAutoscalerSpec: *minReplicas
        HorizontalPodAutoscalerStatus: +currentMetrics *observedGeneration
        MetricTarget: *averageUtilization
        MetricValueStatus: *averageUtilization
    """,
    "api.batch.v1": """
        CronJobSpec: *failedJobsHistoryLimit *startingDeadlineSeconds *successfulJobsHistoryLimit *suspend *timeZone
        JobSpec: *activeDeadlineSeconds *backoffLimit *backoffLimitPerIndex *completionMode *completions *managedBy
            *manualSelector *maxFailedIndexes *parallelism *podReplacementPolicy *suspend *ttlSecondsAfterFinished
        JobStatus: *failedIndexes *ready *terminating
        PodFailurePolicyOnExitCodesRequirement: *containerName
        PodFailurePolicyOnPodConditionsPattern: +status
        SuccessPolicyRule: *succeededCount *succeededIndexes
    """,
    "api.certificates.v1": """
        CertificateSigningRequestSpec: *expirationSeconds
    """,
    "api.coordination.v1": """
        LeaseSpec: *holderIdentity *leaseDurationSeconds *leaseTransitions *preferredHolder *strategy
    """,
    "api.core.v1": """
        AppArmorProfile: *localhostProfile
        AzureDiskVolumeSource: *cachingMode *fsType *kind *readOnly
        AzureFilePersistentVolumeSource: *secretNamespace
        CSIVolumeSource: *fsType *readOnly
        ClientIPConfig: *timeoutSeconds
        ClusterTrustBundleProjection: *name *optional *signerName
        ConfigMap: *immutable
        ConfigMapEnvSource: *optional
        ConfigMapKeySelector: *optional
        ConfigMapProjection: *optional
        ConfigMapVolumeSource: *defaultMode *optional
        Container: resources *restartPolicy
        ContainerImage: +names
        ContainerRestartRule: -action
        ContainerRestartRuleOnExitCodes: -operator
        ContainerStatus: lastState *started state *stopSignal
        DownwardAPIVolumeFile: *mode
        DownwardAPIVolumeSource: *defaultMode
        EndpointAddress: *nodeName
        EndpointPort: *appProtocol
        EphemeralContainer: resources *restartPolicy
        Event: +reportingComponent +reportingInstance source
        FCVolumeSource: *lun
        FileKeySelector: *optional
        GRPCAction: *service
        GlusterfsPersistentVolumeSource: *endpointsNamespace
        HostPathVolumeSource: *type
        ISCSIPersistentVolumeSource: *initiatorName
        ISCSIVolumeSource: *initiatorName
        ImageVolumeStatus: -imageRef
        KeyToPath: *mode
        Lifecycle: *stopSignal
        LoadBalancerIngress: *ipMode
        LocalVolumeSource: *fsType
        NodeDaemonEndpoints: kubeletEndpoint
        NodeFeatures: *supplementalGroupsPolicy
        NodeRuntimeHandler: +name
        NodeRuntimeHandlerFeatures: *recursiveReadOnlyMounts *userNamespaces
        NodeStatus: daemonEndpoints nodeInfo
        NodeSwapStatus: *capacity
        PersistentVolumeClaimSpec: resources *storageClassName *volumeAttributesClassName *volumeMode
        PersistentVolumeClaimStatus: *currentVolumeAttributesClassName
        PersistentVolumeSpec: *volumeAttributesClassName *volumeMode
        PodCertificateProjection: -keyType *maxExpirationSeconds -signerName
        PodDNSConfigOption: *value
        PodResourceClaim: *resourceClaimName *resourceClaimTemplateName
        PodResourceClaimStatus: *resourceClaimName
        PodSchedulingGroup: *podGroupName
        PodSecurityContext: *fsGroup *fsGroupChangePolicy *runAsGroup *runAsNonRoot *runAsUser *seLinuxChangePolicy
            *supplementalGroupsPolicy
        PodSpec: *activeDeadlineSeconds *automountServiceAccountToken *enableServiceLinks *hostUsers
            *hostnameOverride *preemptionPolicy *priority *runtimeClassName *setHostnameAsFQDN *shareProcessNamespace
            *terminationGracePeriodSeconds
        PodTemplate: template
        PortStatus: *error
        Probe: *terminationGracePeriodSeconds
        ProjectedVolumeSource: *defaultMode +sources
        ReplicationControllerSpec: *replicas
        ResourceHealth: *message
        ScaleIOPersistentVolumeSource: ^secretRef
        ScaleIOVolumeSource: ^secretRef
        SeccompProfile: *localhostProfile
        Secret: *immutable
        SecretEnvSource: *optional
        SecretKeySelector: *optional
        SecretProjection: *optional
        SecretVolumeSource: *defaultMode *optional
        SecurityContext: *allowPrivilegeEscalation *privileged *procMount *readOnlyRootFilesystem *runAsGroup
            *runAsNonRoot *runAsUser
        ServiceAccount: *automountServiceAccountToken
        ServiceAccountTokenProjection: *expirationSeconds
        ServicePort: *appProtocol
        ServiceSpec: *allocateLoadBalancerNodePorts *internalTrafficPolicy *ipFamilyPolicy *loadBalancerClass
            *trafficDistribution
        ServiceStatus: loadBalancer
        Toleration: *tolerationSeconds
        TopologySpreadConstraint: *minDomains *nodeAffinityPolicy *nodeTaintsPolicy
        TypedLocalObjectReference: *apiGroup
        TypedObjectReference: *apiGroup *namespace
        VolumeMount: *mountPropagation *recursiveReadOnly
        VolumeMountStatus: *recursiveReadOnly
        WindowsSecurityContextOptions: *gmsaCredentialSpec *gmsaCredentialSpecName *hostProcess *runAsUserName
    """,
    "api.discovery.v1": """
        Endpoint: conditions *hostname *nodeName *zone
        EndpointConditions: *ready *serving *terminating
        EndpointPort: *appProtocol *name *port *protocol
        EndpointSlice: +endpoints +ports
    """,
    "api.events.v1": """
        Event: deprecatedSource regarding
    """,
    "api.flowcontrol.v1": """
        ExemptPriorityLevelConfiguration: *lendablePercent *nominalConcurrencyShares
        FlowSchemaSpec: +matchingPrecedence
        LimitedPriorityLevelConfiguration: *borrowingLimitPercent *lendablePercent limitResponse
            *nominalConcurrencyShares
        QueuingConfiguration: +handSize +queueLengthLimit +queues
        ResourcePolicyRule: +namespaces
    """,
    "api.networking.v1": """
        HTTPIngressPath: *pathType
        IPAddressSpec: ^parentRef
        IngressClassParametersReference: *apiGroup *namespace *scope
        IngressPortStatus: *error
        IngressServiceBackend: port
        IngressSpec: *ingressClassName
        IngressStatus: loadBalancer
        NetworkPolicyPort: *endPort *protocol
        NetworkPolicySpec: podSelector
        ParentReference: -name -resource
    """,
    "api.policy.v1": """
        PodDisruptionBudgetSpec: *unhealthyPodEvictionPolicy
        PodDisruptionBudgetStatus: +currentHealthy +desiredHealthy +disruptionsAllowed +expectedPods
    """,
    "api.rbac.v1": """
        ClusterRole: +rules
        Role: +rules
        RoleRef: +apiGroup
    """,
    "api.resource.v1": f"""{_DEVICES}
        Device: *allNodes *allowMultipleAllocations *bindsToNode *nodeName
        ExactDeviceRequest: *adminAccess
    """,
    "api.resource.v1beta1": f"""{_DEVICES}
        BasicDevice: *allNodes *allowMultipleAllocations *bindsToNode *nodeName
        DeviceRequest: *adminAccess
    """,
    "api.resource.v1beta2": f"""{_DEVICES}
        Device: *allNodes *allowMultipleAllocations *bindsToNode *nodeName
        DeviceTaintSelector: *device *driver *pool
        ExactDeviceRequest: *adminAccess
    """,
    "api.scheduling.v1": """
        PriorityClass: *preemptionPolicy +value
    """,
    "api.storage.v1": """
        CSIDriverSpec: *attachRequired *fsGroupPolicy *nodeAllocatableUpdatePeriodSeconds *podInfoOnMount
            *preventPodSchedulingIfMissing *requiresRepublish *seLinuxMount *serviceAccountTokenInSecrets
            *storageCapacity
        CSINodeDriver: +topologyKeys
        StorageClass: *allowVolumeExpansion *reclaimPolicy *volumeBindingMode
        TokenRequest: *expirationSeconds
        VolumeAttachmentSource: *persistentVolumeName
        VolumeError: *errorCode
        VolumeNodeResources: *count
    """,
    "apiextensions-apiserver.pkg.apis.apiextensions.v1": """
        CustomResourceDefinitionStatus: acceptedNames +conditions +storedVersions
        CustomResourceDefinitionVersion: *deprecationWarning
        CustomResourceSubresourceScale: *labelSelectorPath
        CustomResourceSubresources: ^status
        JSONSchemaProps: *$ref *maxItems *maxLength *maxProperties *maximum *minItems *minLength *minProperties
            *minimum *multipleOf *x-kubernetes-list-type *x-kubernetes-map-type *x-kubernetes-preserve-unknown-fields
        ServiceReference: *path *port
        ValidationRule: *optionalOldSelf *reason
        WebhookClientConfig: *url
    """,
    "apimachinery.pkg.apis.meta.v1": """
        DeleteOptions: *gracePeriodSeconds *ignoreStoreReadErrorWithClusterBreakingPotential *orphanDependents
            *propagationPolicy
        ListMeta: *remainingItemCount
        ObjectMeta: *deletionGracePeriodSeconds
        OwnerReference: *blockOwnerDeletion *controller
        Preconditions: *resourceVersion *uid
    """,
    "kube-aggregator.pkg.apis.apiregistration.v1": """
        ServiceReference: *port
    """,
}


@dataclass(frozen=True, slots=True)
class Exceptions:
    """To the rule, for one definition."""

    present: frozenset[str] = frozenset()
    absent: frozenset[str] = frozenset()
    pointers: frozenset[str] = frozenset()
    shown: frozenset[str] = frozenset()
    omitted: frozenset[str] = frozenset()


_NONE = Exceptions()
_MARKS = {"^": "absent", "*": "pointers", "+": "shown", "-": "omitted"}


def _parsed(words: list[str]) -> Exceptions:
    rows: dict[str, set[str]] = {}
    for word in words:
        mark = _MARKS.get(word[0], "present")
        rows.setdefault(mark, set()).add(word if mark == "present" else word[1:])
    return Exceptions(**{mark: frozenset(names) for mark, names in rows.items()})


def _parsed_rows(rows: dict[str, str]) -> dict[str, Exceptions]:
    words: dict[str, list[str]] = {}
    for package, text in rows.items():
        name = ""
        for word in text.split():
            if word.endswith(":"):
                name = f"io.k8s.{package}.{word[:-1]}"
            else:
                words.setdefault(name, []).append(word)
    return {name: _parsed(rules) for name, rules in words.items()}


_EXCEPTIONS = _parsed_rows(_ROWS)


def exceptions(definition: str) -> Exceptions:
    return _EXCEPTIONS.get(definition, _NONE)
