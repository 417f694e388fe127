"""How upstream's *internal* types print: JSON with Go's field names, every field present.

Some errors show such a value (``Duplicate value: {"Name":"","Protocol":"TCP",...}``) and immutable specs are refused
with a unified diff of two of them. ``render`` gives the value of a type from our external object, ``spec_diff`` the diff.

A type is a line ``Go=json:kind`` per field in the order of the internal struct. Kinds: ``s`` string, ``i`` number,
``b`` bool (all print their zero when absent), ``q`` quantity, ``p`` pointer, list or map of plain values (null when
absent; values as they are), ``T`` struct by value, ``*T`` pointer to one, ``[T]`` list. ``Go=`` without a name takes the
JSON name of the Go name with a lower-case first letter. ``+T`` embeds the fields of another type.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from functools import cache
from typing import Any

_TYPES = {
    "PodSpec": "Volumes:[Volume] InitContainers:[Container] Containers:[Container] EphemeralContainers:[EphemeralContainer] "
    "RestartPolicy:s TerminationGracePeriodSeconds:p ActiveDeadlineSeconds:p DNSPolicy=dnsPolicy:s NodeSelector:p "
    "ServiceAccountName:s AutomountServiceAccountToken:p NodeName:s SecurityContext:PodSecurityContext "
    "ImagePullSecrets:[LocalObjectReference] Hostname:s Subdomain:s SetHostnameAsFQDN=setHostnameAsFQDN:p Affinity:*Affinity "
    "SchedulerName:s Tolerations:[Toleration] HostAliases:[HostAlias] PriorityClassName:s Priority:p PreemptionPolicy:p "
    "DNSConfig=dnsConfig:*PodDNSConfig ReadinessGates:[PodReadinessGate] RuntimeClassName:p Overhead:p EnableServiceLinks:p "
    "TopologySpreadConstraints:[TopologySpreadConstraint] OS=os:*Named SchedulingGates:[Named] "
    "ResourceClaims:[PodResourceClaim] Resources:*ResourceRequirements HostnameOverride:p SchedulingGroup:*PodSchedulingGroup",
    "PodSchedulingGroup": "PodGroupName:p",
    "Named": "Name:s",
    "LocalObjectReference": "Name:s",
    "PodResourceClaim": "Name:s ResourceClaimName:p ResourceClaimTemplateName:p",
    "PodReadinessGate": "ConditionType:s",
    "PodDNSConfig": "Nameservers:p Searches:p Options:[PodDNSConfigOption]",
    "PodDNSConfigOption": "Name:s Value:p",
    "HostAlias": "IP=ip:s Hostnames:p",
    "Toleration": "Key:s Operator:s Value:s Effect:s TolerationSeconds:p",
    "Taint": "Key:s Value:s Effect:s TimeAdded:p",
    "NodeAddress": "Type:s Address:s",
    "TopologySpreadConstraint": "MaxSkew:i TopologyKey:s WhenUnsatisfiable:s LabelSelector:p MinDomains:p NodeAffinityPolicy:p "
    "NodeTaintsPolicy:p MatchLabelKeys:p",
    # The host namespaces live in the pod's security context internally.
    "PodSecurityContext": "HostNetwork:b HostPID=hostPID:b HostIPC=hostIPC:b ShareProcessNamespace:p HostUsers:p "
    "SELinuxOptions=seLinuxOptions:*SELinuxOptions WindowsOptions:*WindowsOptions RunAsUser:p RunAsGroup:p RunAsNonRoot:p "
    "SupplementalGroups:p SupplementalGroupsPolicy:p FSGroup=fsGroup:p FSGroupChangePolicy=fsGroupChangePolicy:p "
    "Sysctls:[NameValue] SeccompProfile:*SeccompProfile AppArmorProfile:*AppArmorProfile "
    "SELinuxChangePolicy=seLinuxChangePolicy:p",
    "SecurityContext": "Capabilities:*Capabilities Privileged:p SELinuxOptions=seLinuxOptions:*SELinuxOptions "
    "WindowsOptions:*WindowsOptions RunAsUser:p RunAsGroup:p RunAsNonRoot:p ReadOnlyRootFilesystem:p "
    "AllowPrivilegeEscalation:p ProcMount:p SeccompProfile:*SeccompProfile AppArmorProfile:*AppArmorProfile",
    "SeccompProfile": "Type:s LocalhostProfile:p",
    "AppArmorProfile": "Type:s LocalhostProfile:p",
    "SELinuxOptions": "User:s Role:s Type:s Level:s",
    "WindowsOptions": "GMSACredentialSpecName=gmsaCredentialSpecName:p GMSACredentialSpec=gmsaCredentialSpec:p RunAsUserName:p "
    "HostProcess:p",
    "Capabilities": "Add:p Drop:p",
    "NameValue": "Name:s Value:s",
    "Affinity": "NodeAffinity:*NodeAffinity PodAffinity:*PodAffinity PodAntiAffinity:*PodAffinity",
    "NodeAffinity": "RequiredDuringSchedulingIgnoredDuringExecution:*NodeSelector "
    "PreferredDuringSchedulingIgnoredDuringExecution:[PreferredSchedulingTerm]",
    "NodeSelector": "NodeSelectorTerms:[NodeSelectorTerm]",
    "NodeSelectorTerm": "MatchExpressions:[NodeSelectorRequirement] MatchFields:[NodeSelectorRequirement]",
    "NodeSelectorRequirement": "Key:s Operator:s Values:p",
    "PreferredSchedulingTerm": "Weight:i Preference:NodeSelectorTerm",
    "PodAffinity": "RequiredDuringSchedulingIgnoredDuringExecution:[PodAffinityTerm] "
    "PreferredDuringSchedulingIgnoredDuringExecution:[WeightedPodAffinityTerm]",
    "WeightedPodAffinityTerm": "Weight:i PodAffinityTerm:PodAffinityTerm",
    "PodAffinityTerm": "LabelSelector:p Namespaces:p TopologyKey:s NamespaceSelector:p MatchLabelKeys:p MismatchLabelKeys:p",
    "Container": "Name:s Image:s Command:p Args:p WorkingDir:s Ports:[ContainerPort] EnvFrom:[EnvFromSource] Env:[EnvVar] "
    "Resources:ResourceRequirements ResizePolicy:[ContainerResizePolicy] RestartPolicy:p "
    "RestartPolicyRules:[ContainerRestartRule] VolumeMounts:[VolumeMount] VolumeDevices:[VolumeDevice] LivenessProbe:*Probe "
    "ReadinessProbe:*Probe StartupProbe:*Probe Lifecycle:*Lifecycle TerminationMessagePath:s TerminationMessagePolicy:s "
    "ImagePullPolicy:s SecurityContext:*SecurityContext Stdin:b StdinOnce:b TTY=tty:b",
    "EphemeralContainer": "+Container TargetContainerName:s",
    "ContainerPort": "Name:s HostPort:i ContainerPort:i Protocol:s HostIP=hostIP:s",
    "EnvFromSource": "Prefix:s ConfigMapRef:*OptionalName SecretRef:*OptionalName",
    "OptionalName": "Name:s Optional:p",
    "EnvVar": "Name:s Value:s ValueFrom:*EnvVarSource",
    "EnvVarSource": "FieldRef:*ObjectFieldSelector ResourceFieldRef:*ResourceFieldSelector ConfigMapKeyRef:*KeySelector "
    "SecretKeyRef:*KeySelector FileKeyRef:*FileKeySelector",
    "ObjectFieldSelector": "APIVersion=apiVersion:s FieldPath:s",
    "ResourceFieldSelector": "ContainerName:s Resource:s Divisor:q",
    "KeySelector": "Name:s Key:s Optional:p",
    "FileKeySelector": "VolumeName:s Path:s Key:s Optional:p",
    "ResourceRequirements": "Limits:p Requests:p Claims:[ResourceClaim]",
    "ResourceClaim": "Name:s Request:s",
    "ContainerResizePolicy": "ResourceName:s RestartPolicy:s",
    "ContainerRestartRule": "Action:s ExitCodes:*ContainerRestartRuleOnExitCodes",
    "ContainerRestartRuleOnExitCodes": "Operator:s Values:p",
    "VolumeMount": "Name:s ReadOnly:b RecursiveReadOnly:p MountPath:s SubPath:s MountPropagation:p SubPathExpr:s",
    "VolumeDevice": "Name:s DevicePath:s",
    "Probe": "+Handler InitialDelaySeconds:i TimeoutSeconds:i PeriodSeconds:i SuccessThreshold:i FailureThreshold:i "
    "TerminationGracePeriodSeconds:p",
    "Handler": "Exec:*ExecAction HTTPGet=httpGet:*HTTPGetAction TCPSocket=tcpSocket:*TCPSocketAction GRPC=grpc:*GRPCAction",
    "LifecycleHandler": "Exec:*ExecAction HTTPGet=httpGet:*HTTPGetAction TCPSocket=tcpSocket:*TCPSocketAction "
    "Sleep:*SleepAction",
    "Lifecycle": "PostStart:*LifecycleHandler PreStop:*LifecycleHandler StopSignal:p",
    "ExecAction": "Command:p",
    "HTTPGetAction": "Path:s Port:i Host:s Scheme:s HTTPHeaders=httpHeaders:[NameValue]",
    "TCPSocketAction": "Port:i Host:s",
    "GRPCAction": "Port:i Service:p",
    "SleepAction": "Seconds:i",
    "Volume": "Name:s +VolumeSource",
    "VolumeSource": "HostPath:*HostPath EmptyDir:*EmptyDir GCEPersistentDisk=gcePersistentDisk:*GCEPersistentDisk "
    "AWSElasticBlockStore=awsElasticBlockStore:*AWSElasticBlockStore GitRepo:*GitRepo Secret:*SecretVolume NFS=nfs:*NFS "
    "ISCSI=iscsi:*ISCSI Glusterfs:*Glusterfs PersistentVolumeClaim:*ClaimVolume RBD=rbd:*RBD Quobyte:*Quobyte "
    "FlexVolume:*FlexVolume Cinder:*Cinder CephFS=cephfs:*CephFS Flocker:*Flocker DownwardAPI=downwardAPI:*DownwardAPIVolume "
    "FC=fc:*FC AzureFile:*AzureFile ConfigMap:*ConfigMapVolume VsphereVolume:*Vsphere AzureDisk:*AzureDisk "
    "PhotonPersistentDisk:*Photon Projected:*Projected PortworxVolume:*Portworx ScaleIO=scaleIO:*ScaleIO "
    "StorageOS=storageos:*StorageOS CSI=csi:*CSI Ephemeral:*Ephemeral Image:*ImageVolume",
    "HostPath": "Path:s Type:p",
    "EmptyDir": "Medium:s SizeLimit:p",
    "GCEPersistentDisk": "PDName=pdName:s FSType=fsType:s Partition:i ReadOnly:b",
    "AWSElasticBlockStore": "VolumeID=volumeID:s FSType=fsType:s Partition:i ReadOnly:b",
    "GitRepo": "Repository:s Revision:s Directory:s",
    "SecretVolume": "SecretName:s Items:[KeyToPath] DefaultMode:p Optional:p",
    "KeyToPath": "Key:s Path:s Mode:p",
    "NFS": "Server:s Path:s ReadOnly:b",
    "ISCSI": "TargetPortal:s IQN=iqn:s Lun:i ISCSIInterface=iscsiInterface:s FSType=fsType:s ReadOnly:b Portals:p "
    "DiscoveryCHAPAuth=chapAuthDiscovery:b SessionCHAPAuth=chapAuthSession:b SecretRef:*LocalObjectReference InitiatorName:p",
    "Glusterfs": "EndpointsName=endpoints:s Path:s ReadOnly:b",
    "ClaimVolume": "ClaimName:s ReadOnly:b",
    "RBD": "CephMonitors=monitors:p RBDImage=image:s FSType=fsType:s RBDPool=pool:s RadosUser=user:s Keyring:s "
    "SecretRef:*LocalObjectReference ReadOnly:b",
    "Quobyte": "Registry:s Volume:s ReadOnly:b User:s Group:s Tenant:s",
    "FlexVolume": "Driver:s FSType=fsType:s SecretRef:*LocalObjectReference ReadOnly:b Options:p",
    "Cinder": "VolumeID=volumeID:s FSType=fsType:s ReadOnly:b SecretRef:*LocalObjectReference",
    "CephFS": "Monitors:p Path:s User:s SecretFile:s SecretRef:*LocalObjectReference ReadOnly:b",
    "Flocker": "DatasetName:s DatasetUUID=datasetUUID:s",
    "DownwardAPIVolume": "Items:[DownwardAPIFile] DefaultMode:p",
    "DownwardAPIFile": "Path:s FieldRef:*ObjectFieldSelector ResourceFieldRef:*ResourceFieldSelector Mode:p",
    "FC": "TargetWWNs=targetWWNs:p Lun:p FSType=fsType:s ReadOnly:b WWIDs=wwids:p",
    "AzureFile": "SecretName:s ShareName:s ReadOnly:b",
    "ConfigMapVolume": "Name:s Items:[KeyToPath] DefaultMode:p Optional:p",
    "Vsphere": "VolumePath:s FSType=fsType:s StoragePolicyName:s StoragePolicyID=storagePolicyID:s",
    "AzureDisk": "DiskName:s DataDiskURI=diskURI:s CachingMode:p FSType=fsType:p ReadOnly:p Kind:p",
    "Photon": "PdID=pdID:s FSType=fsType:s",
    "Projected": "Sources:[VolumeProjection] DefaultMode:p",
    "VolumeProjection": "Secret:*ItemsProjection DownwardAPI=downwardAPI:*DownwardAPIProjection ConfigMap:*ItemsProjection "
    "ServiceAccountToken:*TokenProjection ClusterTrustBundle:*BundleProjection PodCertificate:*CertificateProjection",
    "ItemsProjection": "Name:s Items:[KeyToPath] Optional:p",
    "DownwardAPIProjection": "Items:[DownwardAPIFile]",
    "TokenProjection": "Audience:s ExpirationSeconds:i Path:s",
    "BundleProjection": "Name:p SignerName:p LabelSelector:p Optional:p Path:s",
    "CertificateProjection": "SignerName:s KeyType:s MaxExpirationSeconds:p CredentialBundlePath:s KeyPath:s "
    "CertificateChainPath:s UserAnnotations:p",
    "Portworx": "VolumeID=volumeID:s FSType=fsType:s ReadOnly:b",
    "ScaleIO": "Gateway:s System:s SecretRef:*LocalObjectReference SSLEnabled=sslEnabled:b ProtectionDomain:s StoragePool:s "
    "StorageMode:s VolumeName:s FSType=fsType:s ReadOnly:b",
    "StorageOS": "VolumeName:s VolumeNamespace:s FSType=fsType:s ReadOnly:b SecretRef:*LocalObjectReference",
    "CSI": "Driver:s ReadOnly:p FSType=fsType:p VolumeAttributes:p NodePublishSecretRef:*LocalObjectReference",
    "Ephemeral": "VolumeClaimTemplate:*ClaimTemplate",
    "ClaimTemplate": "+ObjectMeta Spec:PersistentVolumeClaimSpec",
    "ImageVolume": "Reference:s PullPolicy:s",
    "PersistentVolumeClaimSpec": "AccessModes:p Selector:p Resources:VolumeResources VolumeName:s StorageClassName:p VolumeMode:p "
    "DataSource:*TypedLocalReference DataSourceRef:*TypedReference VolumeAttributesClassName:p",
    "VolumeResources": "Limits:p Requests:p",
    "TypedLocalReference": "APIGroup=apiGroup:p Kind:s Name:s",
    "TypedReference": "APIGroup=apiGroup:p Kind:s Name:s Namespace:p",
    "PersistentVolumeSource": "GCEPersistentDisk=gcePersistentDisk:*GCEPersistentDisk "
    "AWSElasticBlockStore=awsElasticBlockStore:*AWSElasticBlockStore HostPath:*HostPath Glusterfs:*GlusterfsPV NFS=nfs:*NFS "
    "RBD=rbd:*RBDPV Quobyte:*Quobyte ISCSI=iscsi:*ISCSIPV FlexVolume:*FlexVolumePV Cinder:*CinderPV CephFS=cephfs:*CephFSPV "
    "FC=fc:*FC Flocker:*Flocker AzureFile:*AzureFilePV VsphereVolume:*Vsphere AzureDisk:*AzureDisk "
    "PhotonPersistentDisk:*Photon PortworxVolume:*Portworx ScaleIO=scaleIO:*ScaleIOPV Local:*LocalVolume "
    "StorageOS=storageos:*StorageOSPV CSI=csi:*CSIPV",
    "SecretReference": "Name:s Namespace:s",
    "GlusterfsPV": "EndpointsName=endpoints:s Path:s ReadOnly:b EndpointsNamespace:p",
    "RBDPV": "CephMonitors=monitors:p RBDImage=image:s FSType=fsType:s RBDPool=pool:s RadosUser=user:s Keyring:s "
    "SecretRef:*SecretReference ReadOnly:b",
    "ISCSIPV": "TargetPortal:s IQN=iqn:s Lun:i ISCSIInterface=iscsiInterface:s FSType=fsType:s ReadOnly:b Portals:p "
    "DiscoveryCHAPAuth=chapAuthDiscovery:b SessionCHAPAuth=chapAuthSession:b SecretRef:*SecretReference InitiatorName:p",
    "FlexVolumePV": "Driver:s FSType=fsType:s SecretRef:*SecretReference ReadOnly:b Options:p",
    "CinderPV": "VolumeID=volumeID:s FSType=fsType:s ReadOnly:b SecretRef:*SecretReference",
    "CephFSPV": "Monitors:p Path:s User:s SecretFile:s SecretRef:*SecretReference ReadOnly:b",
    "AzureFilePV": "SecretName:s ShareName:s ReadOnly:b SecretNamespace:p",
    "ScaleIOPV": "Gateway:s System:s SecretRef:*SecretReference SSLEnabled=sslEnabled:b ProtectionDomain:s StoragePool:s "
    "StorageMode:s VolumeName:s FSType=fsType:s ReadOnly:b",
    "LocalVolume": "Path:s FSType=fsType:p",
    "StorageOSPV": "VolumeName:s VolumeNamespace:s FSType=fsType:s ReadOnly:b SecretRef:*ObjectReference",
    "ObjectReference": "Kind:s Namespace:s Name:s UID=uid:s APIVersion=apiVersion:s ResourceVersion:s FieldPath:s",
    "CSIPV": "Driver:s VolumeHandle:s ReadOnly:b FSType=fsType:s VolumeAttributes:p ControllerPublishSecretRef:*SecretReference "
    "NodeStageSecretRef:*SecretReference NodePublishSecretRef:*SecretReference ControllerExpandSecretRef:*SecretReference "
    "NodeExpandSecretRef:*SecretReference",
    "VolumeNodeAffinity": "Required:*NodeSelector",
    "PersistentVolumeSpec": "Capacity:p +PersistentVolumeSource AccessModes:p ClaimRef:*ObjectReference "
    "PersistentVolumeReclaimPolicy:s StorageClassName:s MountOptions:p VolumeMode:p NodeAffinity:*VolumeNodeAffinity "
    "VolumeAttributesClassName:p",
    "PodTemplateSpec": "+ObjectMeta Spec:PodSpec",
    "ServicePort": "Name:s Protocol:s AppProtocol:p Port:i TargetPort:i NodePort:i",
    "NodeConfigSource": "ConfigMap:*ConfigMapNodeConfigSource",
    "ConfigMapNodeConfigSource": "Namespace:s Name:s UID=uid:s ResourceVersion:s KubeletConfigKey:s",
    "ScopeSelector": "MatchExpressions:[ScopeRequirement]",
    "ScopeRequirement": "ScopeName:s Operator:s Values:p",
    "PodIP": "IP=ip:s",
    # apps
    "DeploymentStrategy": "Type:s RollingUpdate:*RollingUpdateDeployment",
    "RollingUpdateDeployment": "MaxUnavailable:i MaxSurge:i",
    "StatefulSetUpdateStrategy": "Type:s RollingUpdate:*RollingUpdateStatefulSet",
    "RollingUpdateStatefulSet": "Partition:i MaxUnavailable:p",
    # batch
    "PodFailurePolicy": "Rules:[PodFailurePolicyRule]",
    "PodFailurePolicyRule": "Action:s OnExitCodes:*PodFailurePolicyExitCodes OnPodConditions:[PodFailurePolicyCondition]",
    "PodFailurePolicyExitCodes": "ContainerName:p Operator:s Values:p",
    "PodFailurePolicyCondition": "Type:s Status:s",
    "SuccessPolicy": "Rules:[SuccessPolicyRule]",
    "SuccessPolicyRule": "SucceededIndexes:p SucceededCount:p",
    # storage
    "VolumeAttachmentSpec": "Attacher:s Source:VolumeAttachmentSource NodeName:s",
    "VolumeAttachmentSource": "PersistentVolumeName:p InlineVolumeSpec:*PersistentVolumeSpec",
    # resource
    "ResourceClaimTemplateSpec": "+ObjectMeta Spec:ResourceClaimSpec",
    "ResourceClaimSpec": "Devices:DeviceClaim",
    "DeviceClaim": "Requests:[DeviceRequest] Constraints:[DeviceConstraint] Config:[DeviceClaimConfiguration]",
    "DeviceRequest": "Name:s Exactly:*ExactDeviceRequest FirstAvailable:[DeviceSubRequest]",
    "ExactDeviceRequest": "DeviceClassName:s Selectors:[DeviceSelector] AllocationMode:s Count:i AdminAccess:p "
    "Tolerations:[Toleration] Capacity:*CapacityRequirements",
    "DeviceSubRequest": "Name:s DeviceClassName:s Selectors:[DeviceSelector] AllocationMode:s Count:i Tolerations:[Toleration] "
    "Capacity:*CapacityRequirements",
    "DeviceSelector": "CEL=cel:*CELDeviceSelector",
    "CELDeviceSelector": "Expression:s",
    "CapacityRequirements": "Requests:p",
    "DeviceAttribute": "IntValue=int:p BoolValue=bool:p StringValue=string:p VersionValue=version:p IntValues=ints:p "
    "BoolValues=bools:p StringValues=strings:p VersionValues=versions:p",
    "DeviceConstraint": "Requests:p MatchAttribute:p DistinctAttribute:p",
    "DeviceClaimConfiguration": "Requests:p Opaque:*OpaqueDeviceConfiguration",
    "OpaqueDeviceConfiguration": "Driver:s Parameters:p",
    # certificates
    "CertificateSigningRequestCondition": "Type:s Status:s Reason:s Message:s LastUpdateTime:p LastTransitionTime:p",
}

_ZERO = {"s": "", "i": 0, "b": False, "q": "0", "p": None}
# What an ObjectMeta embedded in an internal struct prints: its own JSON form.
_OBJECT_META = (
    "name", "generateName", "namespace", "selfLink", "uid", "resourceVersion", "generation", "creationTimestamp",
    "deletionTimestamp", "deletionGracePeriodSeconds", "labels", "annotations", "ownerReferences", "finalizers",
    "managedFields",
)  # fmt: skip


@cache
def _fields(name: str) -> tuple[tuple[str, str, str], ...]:
    out: list[tuple[str, str, str]] = []
    for part in _TYPES[name].split():
        if part == "+ObjectMeta":
            out.append(("", "metadata", "ObjectMeta"))
        elif part[0] == "+":
            out += _fields(part[1:])
        else:
            go, _, kind = part.partition(":")
            go, equals, key = go.partition("=")
            out.append((go, key if equals else go[0].lower() + go[1:], kind))
    return tuple(out)


def render(name: str, obj: Mapping[str, Any] | None) -> dict[str, Any]:
    """The internal type ``name`` with the values of ``obj`` under Go's names; None counts as an empty object."""
    obj = obj or {}
    out: dict[str, Any] = {}
    for go, key, kind in _fields(name):
        if kind == "ObjectMeta":
            meta = obj.get("metadata") or {}
            out.update((k, meta[k]) for k in _OBJECT_META if meta.get(k))
            continue
        value = obj.get(key)
        if kind in _ZERO:
            out[go] = _ZERO[kind] if value is None else in_order(value)
        elif kind[0] == "*":
            out[go] = None if value is None else render(kind[1:], value)
        elif kind[0] == "[":
            out[go] = None if value is None else [render(kind[1:-1], item) for item in value]
        elif name == "PodSpec" and kind == "PodSecurityContext":
            host = ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "hostUsers")
            out[go] = render(kind, {**(value or {}), **{k: obj[k] for k in host if k in obj}})
        else:
            out[go] = render(kind, value)
    return out


def in_order(value: Any) -> Any:
    """A value as Go prints it: maps in key order, a label selector with its labels first."""
    if isinstance(value, dict):
        if value.keys() <= {"matchLabels", "matchExpressions"} and value:
            return {k: in_order(value[k]) for k in ("matchLabels", "matchExpressions") if value.get(k)}
        return {k: in_order(value[k]) for k in sorted(value)}
    if isinstance(value, list):
        return [_expression(v) if isinstance(v, dict) else v for v in value]
    return value


def _expression(value: dict[str, Any]) -> dict[str, Any]:
    return {k: value[k] for k in ("key", "operator", "values") if k in value}


def _lines(value: Any) -> list[str]:
    text = json.dumps(value, indent=1, ensure_ascii=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026").split("\n")


def spec_diff(name: str, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> str:
    """apimachinery's ``diff.Diff(old, new)``: unified, three lines of context, without file names."""
    return diff(render(name, old), render(name, new))


def diff(old: Any, new: Any) -> str:
    """The same of two values that are rendered already."""
    out = list(difflib.unified_diff(_lines(old), _lines(new), n=3, lineterm=""))
    return "".join(line + "\n" for line in out[2:])
