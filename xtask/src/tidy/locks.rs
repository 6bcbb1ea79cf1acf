//! The lock file of the fuzzers, which are a separate workspace: checks what it says about our crates.
//!
//! Must never query a registry: this compares files.

use super::arrows;
use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const FUZZERS: &str = "proof/fuzz/libfuzzer";

/// The names of what each crate depends on.
type Crates = BTreeMap<String, BTreeSet<String>>;

/// Returns a complaint for each crate of ours whose dependencies differ from the lock file of the fuzzers. They are built
/// with `--locked`, which would refuse the difference.
pub fn check(root: &Path) -> Result<Vec<String>> {
    let path = Path::new(FUZZERS).join("Cargo.lock");
    let lock = std::fs::read_to_string(root.join(&path)).with_context(|| FUZZERS)?;
    let manifests = arrows::manifests(root)?;
    let own = manifests.iter().map(|(name, manifest)| {
        let all = arrows::dependencies(manifest, &["dependencies", "build-dependencies"]);
        (name.clone(), all.into_iter().map(str::to_owned).collect())
    });
    Ok(compare(&own.collect(), &locked(&lock).with_context(|| FUZZERS)?))
}

fn compare(own: &Crates, locked: &Crates) -> Vec<String> {
    let both = own.iter().filter_map(|(name, here)| Some((name, here, locked.get(name)?)));
    let complaint = |(name, here, there): (_, &BTreeSet<String>, _)| {
        let differing: Vec<_> = here.symmetric_difference(there).map(String::as_str).collect();
        let what = differing.join(", ");
        (!differing.is_empty()).then(|| {
            format!("{FUZZERS}/Cargo.lock: {name} depends on others now ({what}); run `cargo update --workspace` there")
        })
    };
    both.filter_map(complaint).collect()
}

/// The packages of a lock, without versions of what they depend on.
fn locked(lock: &str) -> Result<Crates> {
    let lock: toml::Table = lock.parse()?;
    let packages = lock.get("package").and_then(toml::Value::as_array);
    let one = |package: &toml::Value| {
        let name = package.get("name")?.as_str()?.to_owned();
        let all = package.get("dependencies").and_then(toml::Value::as_array).into_iter().flatten();
        let names = all.filter_map(|text| text.as_str()?.split(' ').next()).map(str::to_owned);
        Some((name, names.collect()))
    };
    Ok(packages.context("a lock without packages")?.iter().filter_map(one).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dependency_that_the_lock_does_not_have_is_named() {
        let own = |names: &[&str]| {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            Crates::from([("daemon".to_owned(), names), ("xtask".to_owned(), BTreeSet::new())])
        };
        let lock = "[[package]]\nname = \"daemon\"\nversion = \"0.1.0\"\ndependencies = [\"bytes\", \"syn 2.0.1\"]\n";
        let locked = locked(lock).unwrap();
        assert_eq!(compare(&own(&["bytes", "syn"]), &locked), Vec::<String>::new());
        for (names, told) in [(&["bytes", "syn", "toml"][..], "(toml)"), (&["syn"], "(bytes)")] {
            let complaints = compare(&own(names), &locked);
            assert!(complaints.len() == 1 && complaints[0].contains(told), "{complaints:?}");
        }
    }
}
