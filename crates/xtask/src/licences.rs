//! Licences of dependencies: whether `deny.toml` allows them, and the list of what is linked into the binary.
//!
//! `cargo deny` reads the same file (`make deny`), and has to be built first. What is checked here needs cargo alone: each crate that the workspace uses, in tests too, is under a licence that is allowed, comes from a
//! registry that is allowed, and is used in one version, unless `deny.toml` names the others.

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

/// Where the list is, relative to the workspace.
pub const LIST: &str = "THIRD-PARTY.md";
/// The package whose binary is distributed.
const BINARY: &str = "fragmend";
/// What it is distributed for.
const TARGETS: [&str; 2] = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"];

/// What precedes the table.
const HEAD: &str = "\
# What others wrote

These crates are linked into the binary. `make generate` writes the list, from `Cargo.lock` and what the crates say of
themselves; `deny.toml` says which licences are allowed. libbpf, of the crate `libbpf-sys`, is under LGPL-2.1-only OR
BSD-2-Clause; SQLite, of `libsqlite3-sys`, is in the public domain. A binary of `make dist` or `make deb` also contains
libraries of Debian: glibc (LGPL-2.1-or-later), libgcc (GPL-3.0-or-later with its runtime exception), libelf (LGPL-3.0-or-later or GPL-2.0-or-later), zlib (Zlib), libzstd
(BSD-3-Clause or GPL-2.0-only) and Rust's standard library (MIT OR Apache-2.0). To have it with others of these, build it
from its sources, `make dist`. All texts are in the packages (`third-party-texts.txt`).

| crate | version | licence |
|---|---|---|
";

/// The part of `deny.toml` that is checked here.
#[derive(Debug, Deserialize)]
struct Deny {
    licenses: Licenses,
    bans: Bans,
    sources: Sources,
}

#[derive(Debug, Deserialize)]
struct Licenses {
    allow: BTreeSet<String>,
}

#[derive(Debug, Deserialize)]
struct Bans {
    skip: Vec<Skip>,
}

/// A version of a crate that may be used beside another one.
#[derive(Debug, Deserialize)]
struct Skip {
    /// `NAME@VERSION`, without what follows a plus sign.
    #[serde(rename = "crate")]
    spec: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Sources {
    allow_registry: BTreeSet<String>,
}

/// What `cargo metadata` prints, as far as it is read.
#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Debug, Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    /// None of those in the workspace.
    source: Option<String>,
    targets: Vec<Target>,
}

#[derive(Debug, Deserialize)]
struct Target {
    kind: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Debug, Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Debug, Deserialize)]
struct DependencyKind {
    /// None of those that are neither for tests nor for build scripts.
    kind: Option<String>,
}

/// The list, checked.
///
/// # Errors
/// A crate is under no licence that `deny.toml` allows, from elsewhere, or used in several versions; the error names all
/// of them. Cargo fails, or `deny.toml` cannot be read.
pub fn list(root: &Path) -> Result<String> {
    let path = root.join("deny.toml");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let deny: Deny = toml::from_str(&text).with_context(|| path.display().to_string())?;
    let metadata = metadata(root)?;
    check(&deny, &metadata.packages)?;
    table(&metadata)
}

fn metadata(root: &Path) -> Result<Metadata> {
    let mut cargo = Command::new("cargo");
    cargo.args(["metadata", "--format-version=1", "--locked"]).current_dir(root);
    cargo.args(TARGETS.iter().flat_map(|target| ["--filter-platform", target]));
    let output = cargo.output().context("cargo")?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).context("what cargo metadata printed")
}

/// Fails for all packages that are not allowed.
fn check(deny: &Deny, packages: &[Package]) -> Result<()> {
    let mut wrong: Vec<String> = packages.iter().filter_map(|one| objection(deny, one)).collect();
    wrong.extend(duplicates(&deny.bans, packages));
    if !wrong.is_empty() {
        bail!("not allowed by deny.toml:\n{}", wrong.join("\n"));
    }
    Ok(())
}

/// Why a package is not allowed.
fn objection(deny: &Deny, package: &Package) -> Option<String> {
    let source = package.source.as_deref()?;
    let name = format!("{} {}", package.name, package.version);
    let registry = source.strip_prefix("registry+").unwrap_or(source);
    if !deny.sources.allow_registry.contains(registry) {
        return Some(format!("{name} comes from {source}"));
    }
    let Some(licence) = package.license.as_deref() else {
        return Some(format!("{name} names no licence"));
    };
    // Older crates have a slash for OR.
    let Ok(parsed) = spdx::Expression::parse_mode(licence, spdx::ParseMode::LAX) else {
        return Some(format!("{name}: {licence} is no SPDX expression"));
    };
    let is_allowed =
        |requirement: &spdx::LicenseReq| deny.licenses.allow.contains(&requirement.to_string());
    (!parsed.evaluate(is_allowed)).then(|| format!("{name} is under {licence}"))
}

/// Crates that are used in several versions that `bans.skip` does not name, and names in there that are of none.
fn duplicates(bans: &Bans, packages: &[Package]) -> Vec<String> {
    let mut skipped: BTreeSet<&str> = bans.skip.iter().map(|one| &*one.spec).collect();
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for Package { name, version, .. } in packages {
        let release = version.split('+').next().unwrap_or_default();
        if !skipped.remove(&*format!("{name}@{release}")) {
            versions.entry(name).or_default().push(release);
        }
    }
    versions.retain(|_, versions| versions.len() > 1);
    let several = versions.iter().map(|(name, of)| format!("{name} is used as {}", of.join(", ")));
    let unknown = skipped.iter().map(|spec| format!("bans.skip: {spec} is not used"));
    several.chain(unknown).collect()
}

/// The list of what is linked into the binary.
fn table(metadata: &Metadata) -> Result<String> {
    let packages: BTreeMap<&str, &Package> =
        metadata.packages.iter().map(|package| (&*package.id, package)).collect();
    let nodes: BTreeMap<&str, &Node> =
        metadata.resolve.nodes.iter().map(|node| (&*node.id, node)).collect();
    let binary = metadata.packages.iter().find(|p| p.name == BINARY && p.source.is_none());
    let mut left = vec![&*binary.with_context(|| format!("no package {BINARY}"))?.id];
    let mut linked = BTreeMap::new();
    while let Some(id) = left.pop() {
        let package = packages.get(id).with_context(|| format!("no package {id}"))?;
        // What a procedural macro uses is used by the compiler alone.
        let is_macro =
            package.targets.iter().any(|target| target.kind.contains(&"proc-macro".into()));
        if is_macro || linked.insert(id, package).is_some() {
            continue;
        }
        let node = nodes.get(id).with_context(|| format!("{id} is not resolved"))?;
        let is_linked = |one: &&Dependency| one.dep_kinds.iter().any(|kind| kind.kind.is_none());
        left.extend(node.deps.iter().filter(is_linked).map(|one| &*one.pkg));
    }
    let mut lines: Vec<_> = linked
        .values()
        .filter(|package| package.source.is_some())
        .map(|p| (&p.name, &p.version, p.license.as_deref().unwrap_or_default()))
        .collect();
    lines.sort_unstable();
    let mut list = HEAD.to_owned();
    for (name, version, licence) in lines {
        writeln!(list, "| {name} | {version} | {licence} |")?;
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REGISTRY: &str = "https://github.com/rust-lang/crates.io-index";

    fn package(licence: Option<&str>, source: &str) -> Package {
        Package {
            id: String::new(),
            name: "it".into(),
            version: "1.0.0".into(),
            license: licence.map(Into::into),
            source: Some(source.into()),
            targets: Vec::new(),
        }
    }

    fn objection_to(licence: Option<&str>, source: &str) -> Option<String> {
        let allow = ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception"];
        let licenses = Licenses { allow: allow.map(Into::into).into() };
        let sources = Sources { allow_registry: [REGISTRY.into()].into() };
        let bans = Bans { skip: Vec::new() };
        objection(&Deny { licenses, bans, sources }, &package(licence, source))
    }

    #[test]
    fn one_allowed_licence_of_several_is_enough_and_all_of_a_conjunction_are_needed() {
        let source = format!("registry+{REGISTRY}");
        for fine in [
            "MIT",
            "GPL-3.0-only OR MIT",
            "MIT/Apache-2.0",
            "Apache-2.0 WITH LLVM-exception",
            "(MIT OR GPL-2.0-only) AND Apache-2.0",
        ] {
            assert_eq!(objection_to(Some(fine), &source), None);
        }
        for wrong in ["GPL-3.0-only", "MIT AND Zlib", "MIT WITH LLVM-exception"] {
            let said = objection_to(Some(wrong), &source);
            assert_eq!(said, Some(format!("it 1.0.0 is under {wrong}")));
        }
        assert!(objection_to(Some("as you like"), &source).unwrap().contains("no SPDX expression"));
        assert!(objection_to(None, &source).unwrap().contains("names no licence"));
    }

    #[test]
    fn crates_come_from_an_allowed_registry() {
        let source = "git+https://example.org/it#1";
        let said = objection_to(Some("MIT"), source);
        assert_eq!(said, Some(format!("it 1.0.0 comes from {source}")));
    }

    #[test]
    fn a_crate_is_used_in_one_version_unless_the_others_are_named() {
        let versions = |versions: &[&str]| -> Vec<Package> {
            let with = |version: &&str| Package {
                version: (*version).into(),
                ..package(Some("MIT"), REGISTRY)
            };
            versions.iter().map(with).collect()
        };
        let said = |skip: &[&str], used: &[&str]| {
            let skip = skip.iter().map(|spec| Skip { spec: (*spec).into() }).collect();
            duplicates(&Bans { skip }, &versions(used))
        };
        let none: [&str; 0] = [];
        assert_eq!(said(&[], &["1.0.0"]), none);
        assert_eq!(said(&[], &["1.0.0", "2.0.0+x"]), ["it is used as 1.0.0, 2.0.0"]);
        assert_eq!(said(&["it@2.0.0"], &["1.0.0", "2.0.0+x"]), none);
        assert_eq!(said(&["it@3.0.0"], &["1.0.0"]), ["bans.skip: it@3.0.0 is not used"]);
    }
}
