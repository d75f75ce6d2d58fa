//! Which rule a file is under: the first one that matches its path and the programs that use it.
//!
//! A trace has no cgroups: those of the programs that have used a file are looked up by process when a recording ends,
//! and a process may have ended before. A rule that would apply if that process had been in its cgroup is not applied,
//! but it limits: the file is treated by the more careful of the modes that may be meant.
//!
//! So it is for a file with other names (hard links), any of which a rule may match: whoever can link a file elsewhere
//! does not get it moved.

use globset::GlobMatcher;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// What happens to a fragmented file. The order is by how much is done.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Nothing is planned for it, and nothing is said of it.
    Ignore,
    /// It is said what moving it would save.
    #[default]
    Advise,
    /// It is moved, within the budget and the allowed hours.
    Move,
}

/// One rule.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The files; any if absent.
    pub path: Option<GlobMatcher>,
    /// Where one of the programs that use them is, without the leading slash; any if absent.
    pub cgroup: Option<GlobMatcher>,
    /// What happens to them.
    pub mode: Mode,
    /// How ranges are chosen.
    pub policy: fragmend_plan::Policy,
    /// Seconds that each GiB must save in one replay; the planner's own limit if absent.
    pub min_gain_s_per_gib: Option<f64>,
}

/// The cgroups of the programs that were seen to use a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cgroups {
    /// Those that are known, each once, without the leading slash.
    pub known: Vec<String>,
    /// Whether there was a program of which it is not known.
    pub some_unknown: bool,
}

/// What applies to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ruling {
    /// What happens to it.
    pub mode: Mode,
    /// The rule by which ranges are chosen; `None` is without a rule.
    pub rule: Option<usize>,
}

/// What applies to a file at `path`, which may have other names, that programs in `cgroups` use. Without a rule it is advised.
pub fn ruling(rules: &[Rule], path: &Path, has_other_names: bool, cgroups: &Cgroups) -> Ruling {
    let mut limit = Mode::Move;
    for (n, rule) in rules.iter().enumerate() {
        if rule.path.as_ref().is_some_and(|glob| !glob.is_match(path)) {
            if has_other_names {
                limit = limit.min(rule.mode);
            }
            continue;
        }
        let applies = match &rule.cgroup {
            None => true,
            Some(glob) => cgroups.known.iter().any(|cgroup| glob.is_match(cgroup)),
        };
        if applies {
            return Ruling { mode: rule.mode.min(limit), rule: Some(n) };
        }
        if cgroups.some_unknown {
            limit = limit.min(rule.mode);
        }
    }
    Ruling { mode: Mode::Advise.min(limit), rule: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use globset::GlobBuilder;

    fn rule(path: Option<&str>, cgroup: Option<&str>, mode: Mode) -> Rule {
        let glob = |text: &str| {
            GlobBuilder::new(text).literal_separator(true).build().unwrap().compile_matcher()
        };
        let policy = fragmend_plan::Policy::Gain;
        Rule {
            path: path.map(glob),
            cgroup: cgroup.map(glob),
            mode,
            policy,
            min_gain_s_per_gib: None,
        }
    }

    fn in_cgroup(known: &[&str]) -> Cgroups {
        Cgroups { known: known.iter().map(|c| (*c).to_owned()).collect(), some_unknown: false }
    }

    #[test]
    fn the_first_rule_that_matches_applies() {
        let rules = [
            rule(Some("/srv/*/tmp/**"), None, Mode::Ignore),
            rule(Some("/srv/**"), Some("system.slice/db.service"), Mode::Move),
            rule(Some("/srv/**"), None, Mode::Advise),
        ];
        let mode = |path: &str, cgroups: &Cgroups| ruling(&rules, Path::new(path), false, cgroups);
        let db = in_cgroup(&["user.slice", "system.slice/db.service"]);
        assert_eq!(mode("/srv/a/tmp/x", &db), Ruling { mode: Mode::Ignore, rule: Some(0) });
        assert_eq!(mode("/srv/a/b/tmp/x", &db), Ruling { mode: Mode::Move, rule: Some(1) });
        assert_eq!(
            mode("/srv/x", &in_cgroup(&["user.slice"])),
            Ruling { mode: Mode::Advise, rule: Some(2) }
        );
        assert_eq!(mode("/home/x", &db), Ruling { mode: Mode::Advise, rule: None });
    }

    #[test]
    fn another_name_frees_no_file() {
        let rules =
            [rule(Some("/db/**"), None, Mode::Ignore), rule(Some("/tmp/**"), None, Mode::Move)];
        let mode = |rules: &[Rule], others| {
            ruling(rules, Path::new("/tmp/link"), others, &Cgroups::default()).mode
        };
        assert_eq!(mode(&rules, false), Mode::Move);
        assert_eq!(mode(&rules, true), Mode::Ignore);
        assert_eq!(mode(&rules[1..], true), Mode::Move);
    }

    #[test]
    fn a_rule_that_may_apply_limits() {
        let careful = [rule(None, Some("vm.slice/**"), Mode::Ignore), rule(None, None, Mode::Move)];
        let unknown = Cgroups { known: Vec::new(), some_unknown: true };
        let path = Path::new("/srv/x");
        assert_eq!(
            ruling(&careful, path, false, &unknown),
            Ruling { mode: Mode::Ignore, rule: Some(1) }
        );
        assert_eq!(
            ruling(&careful, path, false, &in_cgroup(&["db"])),
            Ruling { mode: Mode::Move, rule: Some(1) }
        );
        // It never permits more.
        let bold = [rule(None, Some("vm.slice/**"), Mode::Move), rule(None, None, Mode::Advise)];
        assert_eq!(ruling(&bold, path, false, &unknown).mode, Mode::Advise);
        assert_eq!(
            ruling(&bold[..1], path, false, &unknown),
            Ruling { mode: Mode::Advise, rule: None }
        );
    }
}
