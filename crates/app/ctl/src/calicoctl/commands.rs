//! The commands of calicoctl, as a table: names, flags, and a few words on each.

use super::arguments::{Command, Flag, Takes, Words};

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Apply,
    Create,
    Delete,
    Get,
    IpamCheck,
    IpamConfigure,
    IpamRelease,
    IpamShow,
    IpamSplit,
    Label,
    Patch,
    Replace,
    Validate,
    Version,
    /// A command that calicoctl has and this version does not.
    NotYet,
}

const fn flag(long: &'static str, takes: Takes, help: &'static str) -> Flag {
    Flag { long, short: None, takes, help }
}

const fn short(long: &'static str, letter: char, takes: Takes, help: &'static str) -> Flag {
    Flag { long, short: Some(letter), takes, help }
}

const FILENAME: Flag =
    short("filename", 'f', Takes::Text, "A file, a folder of files, or - for standard input");
const RECURSIVE: Flag = short("recursive", 'R', Takes::Bool, "With a folder: its folders too");
const SKIP_EMPTY: Flag = flag("skip-empty", Takes::Bool, "Files without resources are no error");
const CONFIG: Flag = short(
    "config",
    'c',
    Takes::Text,
    "The file that says where the datastore is (default /etc/calico/calicoctl.cfg)",
);
const NAMESPACE: Flag =
    short("namespace", 'n', Takes::Text, "The namespace of the resource (default \"default\")");

/// The flags that every command has.
pub(crate) const EVERYWHERE: &[Flag] = &[
    flag("allow-version-mismatch", Takes::Bool, "Work with a cluster of another Calico version"),
    flag("context", Takes::Text, "The kubeconfig context to use"),
    short("log-level", 'l', Takes::Text, "panic, fatal, error, warn, info or debug"),
    short("help", 'h', Takes::Bool, "Show this text"),
];

const FROM_FILE: &[Flag] = &[FILENAME, RECURSIVE, SKIP_EMPTY, NAMESPACE, CONFIG];

const GROUP: Command = Command {
    name: "",
    usage: "COMMAND",
    about: "",
    examples: &[],
    flags: &[],
    words: Words::Any,
    verb: None,
    commands: &[],
};

const NOT_YET: Command = Command { usage: "[flags]", verb: Some(Verb::NotYet), ..GROUP };

/// The program itself.
pub(crate) static PROGRAM: Command = Command {
    name: "calicoctl",
    about: "Shows and changes the resources in a Calico datastore.",
    examples: &[
        "calicoctl get nodes -o wide",
        "calicoctl apply -f policies/ -R",
        "calicoctl ipam show --show-blocks",
    ],
    commands: &[
        APPLY, CLUSTER, CREATE, DATASTORE, DELETE, GET, IPAM, LABEL, NODE, PATCH, REPLACE,
        VALIDATE, VERSION,
    ],
    ..GROUP
};

const APPLY: Command = Command {
    name: "apply",
    usage: "-f FILE [flags]",
    about: "Creates resources, or brings existing ones to what the documents say.",
    examples: &["calicoctl apply -f pool.yaml", "cat pool.json | calicoctl apply -f -"],
    flags: FROM_FILE,
    verb: Some(Verb::Apply),
    ..GROUP
};

const CREATE: Command = Command {
    name: "create",
    usage: "-f FILE [flags]",
    about: "Creates resources; one that exists is an error.",
    examples: &["calicoctl create -f pool.yaml", "calicoctl create -f pools/ --skip-exists"],
    flags: &[
        FILENAME,
        RECURSIVE,
        SKIP_EMPTY,
        flag("skip-exists", Takes::Bool, "Leave resources that exist as they are"),
        NAMESPACE,
        CONFIG,
    ],
    verb: Some(Verb::Create),
    ..GROUP
};

const REPLACE: Command = Command {
    name: "replace",
    usage: "-f FILE [flags]",
    about: "Replaces resources that exist.",
    examples: &["calicoctl replace -f pool.yaml"],
    flags: FROM_FILE,
    verb: Some(Verb::Replace),
    ..GROUP
};

const VALIDATE: Command = Command {
    name: "validate",
    usage: "-f FILE [flags]",
    about: "Checks documents without a datastore.",
    examples: &["calicoctl validate -f policies/ -R"],
    flags: FROM_FILE,
    verb: Some(Verb::Validate),
    ..GROUP
};

const DELETE: Command = Command {
    name: "delete",
    usage: "(KIND NAME... | -f FILE) [flags]",
    about: "Deletes resources, by name or those in documents.",
    examples: &["calicoctl delete ippool old-pool", "calicoctl delete -f pool.yaml"],
    flags: &[
        FILENAME,
        RECURSIVE,
        SKIP_EMPTY,
        short("skip-not-exists", 's', Takes::Bool, "A resource that is gone already is no error"),
        NAMESPACE,
        CONFIG,
    ],
    verb: Some(Verb::Delete),
    ..GROUP
};

const GET: Command = Command {
    name: "get",
    usage: "(KIND [NAME...] | -f FILE) [flags]",
    about: "Shows resources: all of a kind, some by name, or those in documents.",
    examples: &["calicoctl get np -A", "calicoctl get ippool default-ipv4-ippool -o yaml"],
    flags: &[
        short(
            "output",
            'o',
            Takes::Text,
            "ps, wide, yaml, json, custom-columns=A,B, go-template=TEXT or go-template-file=FILE",
        ),
        short("all-namespaces", 'A', Takes::Bool, "From every namespace"),
        short("all-namespaces-a", 'a', Takes::Bool, ""),
        flag("export", Takes::Bool, "With names: without what belongs to this cluster only"),
        FILENAME,
        RECURSIVE,
        SKIP_EMPTY,
        NAMESPACE,
        CONFIG,
    ],
    verb: Some(Verb::Get),
    ..GROUP
};

const PATCH: Command = Command {
    name: "patch",
    usage: "KIND NAME -p PATCH [flags]",
    about: "Changes fields of one resource.",
    examples: &["calicoctl patch ippool p1 -p '{\"spec\":{\"natOutgoing\":true}}'"],
    flags: &[
        short("patch", 'p', Takes::Text, "A JSON object with the fields to change"),
        short("type", 't', Takes::Text, "Taken and not looked at: patches are strategic merges"),
        NAMESPACE,
        CONFIG,
    ],
    words: Words::Exactly(2),
    verb: Some(Verb::Patch),
    ..GROUP
};

const LABEL: Command = Command {
    name: "label",
    usage: "KIND NAME (KEY=VALUE | KEY --remove) [flags]",
    about: "Sets or removes a label of one resource.",
    examples: &["calicoctl label node n1 rack=4", "calicoctl label node n1 rack --remove"],
    flags: &[
        flag("overwrite", Takes::Bool, "Change the value of a label that is there"),
        flag("remove", Takes::Bool, "Remove the label"),
        NAMESPACE,
        CONFIG,
    ],
    words: Words::AtLeast(3),
    verb: Some(Verb::Label),
    ..GROUP
};

const VERSION: Command = Command {
    name: "version",
    usage: "[flags]",
    about: "Shows the version of this program and of the cluster.",
    examples: &["calicoctl version --client", "calicoctl version --poll=5s"],
    flags: &[
        flag("client", Takes::Bool, "Do not ask the cluster"),
        flag("poll", Takes::Text, "Ask again and again, so far apart (5s, 1m)"),
        CONFIG,
    ],
    verb: Some(Verb::Version),
    ..GROUP
};

const IPAM: Command = Command {
    name: "ipam",
    about: "Shows and tunes the use of addresses.",
    examples: &["calicoctl ipam show --ip=10.244.0.7"],
    commands: &[
        Command {
            name: "check",
            about: "Looks for contradictions between blocks, handles and endpoints.",
            flags: &[
                flag("show-all-ips", Takes::Bool, "Print every address looked at"),
                flag("show-problem-ips", Takes::Bool, "Print every address with a problem"),
                short("output", 'o', Takes::Text, "The file for the report"),
                flag("kubeconfig", Takes::Text, "The kubeconfig to use"),
                CONFIG,
            ],
            usage: "[flags]",
            examples: &["calicoctl ipam check --show-problem-ips -o report.json"],
            verb: Some(Verb::IpamCheck),
            ..GROUP
        },
        Command {
            name: "configure",
            usage: "[flags]",
            about: "Changes how addresses are given out, for the whole cluster.",
            examples: &["calicoctl ipam configure --strictaffinity=true"],
            flags: &[
                flag("strictaffinity", Takes::Text, "true: nodes do not borrow from each other"),
                flag("max-blocks-per-host", Takes::Text, "At most so many blocks for a node"),
                flag("kubevirt-ip-persistence", Takes::Text, "Enabled or Disabled"),
                flag("ip-cooldown-seconds", Takes::Int, "Keep released addresses so long unused"),
                CONFIG,
            ],
            verb: Some(Verb::IpamConfigure),
            ..GROUP
        },
        Command {
            name: "release",
            about: "Gives addresses back.",
            flags: &[
                flag("ip", Takes::Text, "The address"),
                flag("from-report", Takes::Text, "A report of ipam check; may be given again"),
                flag("force", Takes::Bool, "Release although the report is old"),
                CONFIG,
            ],
            usage: "[flags]",
            examples: &[
                "calicoctl ipam release --ip=10.65.0.4",
                "calicoctl ipam release --from-report=report.json",
            ],
            verb: Some(Verb::IpamRelease),
            ..GROUP
        },
        Command {
            name: "show",
            usage: "[flags]",
            about: "Shows how full pools and blocks are, or who has an address.",
            examples: &["calicoctl ipam show --show-blocks", "calicoctl ipam show --ip=10.65.0.4"],
            flags: &[
                flag("ip", Takes::Text, "Who has this address"),
                flag("show-blocks", Takes::Bool, "The blocks of each pool too"),
                flag("show-borrowed", Takes::Bool, "Addresses used outside of their block's node"),
                flag("show-configuration", Takes::Bool, "The settings of ipam configure"),
                CONFIG,
            ],
            verb: Some(Verb::IpamShow),
            ..GROUP
        },
        Command {
            name: "split",
            usage: "NUMBER [flags]",
            about: "Cuts a pool into smaller ones.",
            flags: &[
                flag("cidr", Takes::Text, "The pool, by its range"),
                flag("name", Takes::Text, "The pool, by name"),
                CONFIG,
            ],
            words: Words::Exactly(1),
            examples: &["calicoctl ipam split 4 --name=pool"],
            verb: Some(Verb::IpamSplit),
            ..GROUP
        },
    ],
    ..GROUP
};

const NODE: Command = Command {
    name: "node",
    about: "Looks after the Calico node on this host.",
    commands: &[
        Command {
            name: "checksystem",
            about: "Looks whether the kernel has what a node needs.",
            flags: &[short("kernel-config", 'f', Takes::Text, "The kernel's configuration file")],
            ..NOT_YET
        },
        Command {
            name: "diags",
            about: "Collects what is needed to look into a problem of the node.",
            flags: &[flag("log-dir", Takes::Text, "Where the logs are")],
            ..NOT_YET
        },
        Command {
            name: "run",
            about: "Starts the node container.",
            flags: &[
                flag("as", Takes::Text, "The AS number of this node"),
                flag("backend", Takes::Text, "bird or none"),
                flag("dryrun", Takes::Bool, "Print the command only"),
                flag("felix-config", Takes::Text, "A file with Felix settings"),
                flag("init-system", Takes::Bool, "For use in an init system"),
                flag("ip", Takes::Text, "The IPv4 address of this node"),
                flag("ip-autodetection-method", Takes::Text, "How to find the IPv4 address"),
                flag("ip6", Takes::Text, "The IPv6 address of this node"),
                flag("ip6-autodetection-method", Takes::Text, "How to find the IPv6 address"),
                flag("log-dir", Takes::Text, "Where the logs go"),
                flag("name", Takes::Text, "The name of this node"),
                flag("no-default-ippools", Takes::Bool, "Do not make the default pools"),
                flag("node-image", Takes::Text, "The image to run"),
                CONFIG,
            ],
            ..NOT_YET
        },
        Command { name: "status", about: "Shows how the node is doing.", ..NOT_YET },
    ],
    ..GROUP
};

const DATASTORE: Command = Command {
    name: "datastore",
    about: "Moves the content of datastores.",
    commands: &[
        Command {
            name: "migrate",
            about: "Moves the content of an etcd datastore to Kubernetes.",
            commands: &[
                Command {
                    name: "export",
                    about: "Prints the content of the etcd datastore.",
                    flags: &[CONFIG],
                    ..NOT_YET
                },
                Command {
                    name: "import",
                    about: "Stores an export in Kubernetes.",
                    flags: &[short("filename", 'f', Takes::Text, "The export"), CONFIG],
                    ..NOT_YET
                },
                Command {
                    name: "lock",
                    about: "Stops changes to the datastore.",
                    flags: &[CONFIG],
                    ..NOT_YET
                },
                Command {
                    name: "unlock",
                    about: "Lets changes to the datastore happen again.",
                    flags: &[CONFIG],
                    ..NOT_YET
                },
            ],
            ..GROUP
        },
        Command {
            name: "migrate-policy-names",
            about: "Takes the prefix \"default.\" off the names of old policies.",
            flags: &[CONFIG],
            ..NOT_YET
        },
    ],
    ..GROUP
};

const CLUSTER: Command = Command {
    name: "cluster",
    about: "Looks into the cluster as a whole.",
    commands: &[Command {
        name: "diags",
        about: "Collects what is needed to look into a problem of the cluster.",
        flags: &[
            flag("since", Takes::Text, "Logs newer than this only (30m, 2h)"),
            flag("max-logs", Takes::Int, "At most so many logs of each component"),
            flag("max-parallelism", Takes::Int, "At most so many at a time"),
            flag("focus-nodes", Takes::Text, "The nodes to begin with"),
            flag("skip-temp-dir-cleanup", Takes::Bool, "Keep the temporary folder"),
            CONFIG,
        ],
        ..NOT_YET
    }],
    ..GROUP
};
