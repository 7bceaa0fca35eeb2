//! What follows from several parameters together.

use super::Config;
use net::Duration;

use super::value::{TableRange, Value};

const DEFAULT_TABLES: TableRange = TableRange { first: 1, last: 250 };

impl Config {
    /// The value of a parameter that the program itself names.
    ///
    /// # Panics
    ///
    /// If there is no such parameter: a mistake in the program, not in its input.
    fn known(&self, name: &str) -> &Value {
        self.get(name).expect("the program asks only for parameters of the table")
    }

    /// The text of a parameter; empty for one that is not a text. The parameter must exist.
    pub fn text(&self, name: &str) -> &str {
        self.known(name).as_text().unwrap_or("")
    }

    /// Whether a boolean parameter is on. The parameter must exist.
    pub fn is_on(&self, name: &str) -> bool {
        self.known(name).as_bool().unwrap_or(false)
    }

    /// The number of a parameter; 0 for one that is not a number. The parameter must exist.
    pub fn int(&self, name: &str) -> i64 {
        self.known(name).as_int().unwrap_or(0)
    }

    /// The span of a parameter; none for one that is not a span. The parameter must exist.
    pub fn duration(&self, name: &str) -> Duration {
        self.known(name).as_duration().unwrap_or_default()
    }

    /// Why the values do not fit together; empty when they do.
    pub fn contradictions(&self) -> Vec<String> {
        let mut found = Vec::new();
        if self.text("FelixHostname").is_empty() {
            found.push("FelixHostname is not set and the host has no name".to_owned());
        }
        let has_endpoints =
            matches!(self.known("EtcdEndpoints"), Value::List(list) if !list.is_empty());
        if self.text("DatastoreType") == "etcdv3" && !has_endpoints {
            for name in ["EtcdScheme", "EtcdAddr"] {
                if self.text(name).is_empty() {
                    found.push(format!("one of EtcdEndpoints and {name} must be set"));
                }
            }
        }
        let files = ["TyphaKeyFile", "TyphaCertFile", "TyphaCAFile"];
        let is_set = |name: &&str| !self.text(name).is_empty();
        let has_name = ["TyphaCN", "TyphaURISAN"].iter().any(is_set);
        let is_complete = has_name && files.iter().all(is_set);
        if (has_name || files.iter().any(is_set)) && !is_complete {
            found.push(
                "TLS to Typha needs TyphaKeyFile, TyphaCertFile, TyphaCAFile, and TyphaCN or \
                 TyphaURISAN"
                    .to_owned(),
            );
        }
        found
    }

    /// The prefixes of the names of workload interfaces.
    pub fn interface_prefixes(&self) -> Vec<&str> {
        self.text("InterfacePrefix").split(',').collect()
    }

    /// Whether the cluster is one of OpenStack, by its type or by the settings it needs.
    pub fn is_openstack(&self) -> bool {
        self.text("ClusterType").to_lowercase().contains("openstack")
            || !matches!(self.text("MetadataAddr"), "" | "127.0.0.1")
            || !matches!(self.int("MetadataPort"), 0 | 8775)
            || self.interface_prefixes().contains(&"tap")
    }

    /// The provider of the Kubernetes cluster, from its type; empty when unknown.
    pub fn kubernetes_provider(&self) -> &'static str {
        let known = |word: &str| match word.to_lowercase().as_str() {
            "" => Some(""),
            "eks" | "ecs" => Some("EKS"),
            "gke" => Some("GKE"),
            "aks" => Some("AKS"),
            "openshift" => Some("OpenShift"),
            "dockerenterprise" => Some("DockerEnterprise"),
            _ => None,
        };
        self.text("ClusterType").split(',').find_map(known).unwrap_or("")
    }

    /// Whether the agent programs the routes of pools with IP-in-IP.
    pub fn programs_ipip_routes(&self) -> bool {
        matches!(self.text("ProgramClusterRoutes"), "Enabled" | "EnabledIPIPOnly")
    }

    /// Whether the agent programs the routes of pools without encapsulation.
    pub fn programs_unencapsulated_routes(&self) -> bool {
        matches!(self.text("ProgramClusterRoutes"), "Enabled" | "EnabledNoEncapOnly")
    }

    /// The route tables that the agent may use.
    pub fn route_tables(&self) -> Vec<TableRange> {
        match (self.known("RouteTableRanges"), self.known("RouteTableRange")) {
            (Value::TableRanges(ranges), _) if !ranges.is_empty() => ranges.clone(),
            (_, Value::Tables(range)) if *range != TableRange::default() => vec![*range],
            _ => vec![DEFAULT_TABLES],
        }
    }
}
