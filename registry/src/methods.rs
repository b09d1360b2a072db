//! Methods by the names of their papers, and the protocol that each is.

/// Method, protocol, and what makes the one of the other.
const METHODS: &[(&str, &str, &str)] = &[
    (
        "fedavg",
        "param-rounds",
        "`aggregator: mean`; see specs/fedavg",
    ),
    (
        "fedprox",
        "param-rounds",
        "`mu`; see specs/fedavg/mnist-fedprox.yaml",
    ),
    (
        "feddf",
        "param-rounds",
        "`fuse`; see specs/quick/feddf.yaml",
    ),
    (
        "fedgen",
        "param-rounds",
        "`generate`; see specs/quick/fedgen.yaml",
    ),
    (
        "fedkd",
        "one-shot-distill",
        "`quantiser` and `privacy`; see specs/fedkd",
    ),
    (
        "fediod",
        "generate-and-distill",
        "a generator, and discriminators at the clients; see specs/fediod",
    ),
    (
        "fedkt",
        "two-tier-vote",
        "a teacher, a student and a final model; see specs/fedkt",
    ),
    (
        "selective-fd",
        "co-distill",
        "`client-filter` and `server-filter`; see specs/selective-fd",
    ),
    (
        "fedmd",
        "co-distill",
        "`labels: scores`; see specs/selective-fd/fedmd.yaml",
    ),
    (
        "feded",
        "co-distill",
        "`teacher: student`; see specs/selective-fd/feded.yaml",
    ),
    (
        "ds-fl",
        "co-distill",
        "`ensemble: entropy-reduction`; see specs/quick/ds-fl.yaml",
    ),
    (
        "cronus",
        "co-distill",
        "`ensemble: robust-labels`; see specs/quick/cronus.yaml",
    ),
    (
        "fkd",
        "class-distill",
        "`ensemble: mean-of-classes`; see specs/quick/fkd.yaml",
    ),
    (
        "pls",
        "class-distill",
        "`ensemble: mean-of-classes` and `which: agreeing`; see specs/selective-fd/pls.yaml",
    ),
    ("fedmd-nfdp", "co-distill", "`sampling`; see specs/nfdp"),
];

/// `` `fedavg` is protocol `param-rounds` with .. ``, if there is such a method and protocol.
pub(crate) fn hint(name: &str, known: impl Fn(&str) -> bool) -> Option<String> {
    let name = name.to_ascii_lowercase().replace('_', "-");
    let (method, protocol, with) = METHODS.iter().find(|m| m.0 == name)?;
    known(protocol).then(|| format!("`{method}` is `{protocol}` with {with}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_names_its_protocol() {
        let text = hint("FedAvg", |p| p == "param-rounds").unwrap();
        assert_eq!(
            text,
            "`fedavg` is `param-rounds` with `aggregator: mean`; see specs/fedavg"
        );
        assert_eq!(hint("fedavg", |_| false), None);
        assert_eq!(hint("rounds", |_| true), None);
    }
}
