//! The configuration of the Kubernetes controllers.

use super::Keep::{Always, Given};
use super::Limit::{MaxLength, Maximum, Minimum, OneOf};
use super::Shape::{self, Duration, List, Map, Text};
use super::meta::{API_VERSION, KIND, METADATA, spec, status};
use super::{Field, Object};

/// The kind KubeControllersConfiguration.
#[rustfmt::skip]
pub(super) static KUBE_CONTROLLERS_CONFIGURATION: Object = Object {
    name: "KubeControllersConfiguration",
    fields: &[KIND, API_VERSION, METADATA, spec(&KUBE_CONTROLLERS_CONFIGURATION_SPEC), status(&KUBE_CONTROLLERS_CONFIGURATION_STATUS, Always)],
};

#[rustfmt::skip]
static KUBE_CONTROLLERS_CONFIGURATION_SPEC: Object = Object {
    name: "KubeControllersConfigurationSpec",
    fields: &[
        Field::new("logSeverityScreen", "LogSeverityScreen", Text).limits(&[OneOf(&["None", "Debug", "Info", "Warning", "Error", "Fatal", "Panic"])]).help("The least severe messages that are printed"),
        Field::new("healthChecks", "HealthChecks", Text).default(r#""Enabled""#).limits(&[OneOf(&["Enabled", "Disabled"])]).checks("omitempty,oneof=Enabled Disabled").help("Whether health checks are served"),
        Field::new("etcdV3CompactionPeriod", "EtcdV3CompactionPeriod", Duration).keep(Given).help("How often etcd's history is trimmed; 0 turns it off"),
        Field::new("prometheusMetricsPort", "PrometheusMetricsPort", Shape::INT).keep(Given).limits(&[Minimum(0), Maximum(65535)]).help("The port at which metrics are served; 0 for none"),
        Field::new("controllers", "Controllers", Shape::Object(&CONTROLLERS_CONFIG)).keep(Always).required().help("Which controllers run, and how"),
        Field::new("debugProfilePort", "DebugProfilePort", Shape::INT32).keep(Given).limits(&[Minimum(0), Maximum(65535)]).help("The port of the profiling server; none if not set"),
    ],
};

#[rustfmt::skip]
static CONTROLLERS_CONFIG: Object = Object {
    name: "ControllersConfig",
    fields: &[
        Field::new("node", "Node", Shape::Object(&NODE_CONTROLLER_CONFIG)).keep(Given).help("Cleans up after nodes that are gone; off if not set"),
        Field::new("policy", "Policy", Shape::Object(&POLICY_CONTROLLER_CONFIG)).keep(Given).help("Copies Kubernetes network policies; off if not set"),
        Field::new("workloadEndpoint", "WorkloadEndpoint", Shape::Object(&WORKLOAD_ENDPOINT_CONTROLLER_CONFIG)).keep(Given).help("Copies labels of pods; off if not set"),
        Field::new("serviceAccount", "ServiceAccount", Shape::Object(&SERVICE_ACCOUNT_CONTROLLER_CONFIG)).keep(Given).help("Makes profiles of service accounts; off if not set"),
        Field::new("namespace", "Namespace", Shape::Object(&NAMESPACE_CONTROLLER_CONFIG)).keep(Given).help("Makes profiles of namespaces; off if not set"),
        Field::new("loadBalancer", "LoadBalancer", Shape::Object(&LOAD_BALANCER_CONTROLLER_CONFIG)).keep(Given).help("Gives addresses to load balancer services; off if not set"),
        Field::new("migration", "Migration", Shape::Object(&MIGRATION_CONTROLLER_CONFIG)).keep(Given).help("Moves objects to newer forms; off if not set"),
    ],
};

#[rustfmt::skip]
static NODE_CONTROLLER_CONFIG: Object = Object {
    name: "NodeControllerConfig",
    fields: &[
        Field::new("reconcilerPeriod", "ReconcilerPeriod", Duration).keep(Given).help("How often everything is checked again"),
        Field::new("syncLabels", "SyncLabels", Text).limits(&[OneOf(&["Enabled", "Disabled"])]).checks("omitempty,oneof=Enabled Disabled").help("Whether labels of Kubernetes nodes are copied"),
        Field::new("hostEndpoint", "HostEndpoint", Shape::Object(&AUTO_HOST_ENDPOINT_CONFIG)).keep(Given).help("Whether and how host endpoints are made for nodes"),
        Field::new("leakGracePeriod", "LeakGracePeriod", Duration).keep(Given).help("How long an address may be without an owner before it is released"),
    ],
};

#[rustfmt::skip]
static AUTO_HOST_ENDPOINT_CONFIG: Object = Object {
    name: "AutoHostEndpointConfig",
    fields: &[
        Field::new("autoCreate", "AutoCreate", Text).limits(&[OneOf(&["Enabled", "Disabled"])]).checks("omitempty,oneof=Enabled Disabled").help("Whether host endpoints are made"),
        Field::new("createDefaultHostEndpoint", "CreateDefaultHostEndpoint", Text).checks("omitempty,createDefaultHostEndpoint").help("Whether there is one for all interfaces of a node"),
        Field::new("templates", "Templates", List(&Shape::Object(&TEMPLATE))).checks("omitempty,dive").help("Further host endpoints to make"),
    ],
};

#[rustfmt::skip]
static TEMPLATE: Object = Object {
    name: "Template",
    fields: &[
        Field::new("generateName", "GenerateName", Text).limits(&[MaxLength(253)]).checks("omitempty,name").help("Part of the name of the host endpoints"),
        Field::new("interfaceCIDRs", "InterfaceCIDRs", List(&Text)).checks("cidrs").help("Takes in addresses of these ranges"),
        Field::new("interfacePattern", "InterfacePattern", Text).checks("omitempty,regexp").help("Takes in interfaces that match this regular expression"),
        Field::new("labels", "Labels", Map(&Text)).checks("omitempty,labels").help("Labels for the host endpoints"),
        Field::new("annotations", "Annotations", Map(&Text)).help("Annotations for the host endpoints"),
        Field::new("nodeSelector", "NodeSelector", Text).checks("omitempty,selector").help("Selects the nodes"),
    ],
};

#[rustfmt::skip]
static POLICY_CONTROLLER_CONFIG: Object = Object {
    name: "PolicyControllerConfig",
    fields: &[
        Field::new("reconcilerPeriod", "ReconcilerPeriod", Duration).keep(Given).help("How often everything is checked again"),
    ],
};

#[rustfmt::skip]
static WORKLOAD_ENDPOINT_CONTROLLER_CONFIG: Object = Object {
    name: "WorkloadEndpointControllerConfig",
    fields: &[
        Field::new("reconcilerPeriod", "ReconcilerPeriod", Duration).keep(Given).help("How often everything is checked again"),
    ],
};

#[rustfmt::skip]
static SERVICE_ACCOUNT_CONTROLLER_CONFIG: Object = Object {
    name: "ServiceAccountControllerConfig",
    fields: &[
        Field::new("reconcilerPeriod", "ReconcilerPeriod", Duration).keep(Given).help("How often everything is checked again"),
    ],
};

#[rustfmt::skip]
static NAMESPACE_CONTROLLER_CONFIG: Object = Object {
    name: "NamespaceControllerConfig",
    fields: &[
        Field::new("reconcilerPeriod", "ReconcilerPeriod", Duration).keep(Given).help("How often everything is checked again"),
    ],
};

#[rustfmt::skip]
static LOAD_BALANCER_CONTROLLER_CONFIG: Object = Object {
    name: "LoadBalancerControllerConfig",
    fields: &[
        Field::new("assignIPs", "AssignIPs", Text).default(r#""AllServices""#).limits(&[OneOf(&["AllServices", "RequestedServicesOnly"])]).help("Which services get an address"),
    ],
};

#[rustfmt::skip]
static MIGRATION_CONTROLLER_CONFIG: Object = Object {
    name: "MigrationControllerConfig",
    fields: &[
        Field::new("policyNameMigrator", "PolicyNameMigrator", Text).default(r#""Enabled""#).limits(&[OneOf(&["Disabled", "Enabled"])]).checks("omitempty,oneof=Enabled Disabled").help("Whether policies are renamed to newer names"),
    ],
};

#[rustfmt::skip]
static KUBE_CONTROLLERS_CONFIGURATION_STATUS: Object = Object {
    name: "KubeControllersConfigurationStatus",
    fields: &[
        Field::new("runningConfig", "RunningConfig", Shape::Object(&KUBE_CONTROLLERS_CONFIGURATION_SPEC)).keep(Given).help("The configuration in use"),
        Field::new("environmentVars", "EnvironmentVars", Map(&Text)).help("The environment variables that were taken into account"),
    ],
};
