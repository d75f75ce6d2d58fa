//! Policies that are accepted, refused with their line, and explained.

use super::*;

const WHOLE: &str = r#"
paths = ["/srv", "/home"]
hours = ["22:00-06:00"]
time_zone = "Europe/Berlin"
[recording]
window = "1m"
every = "15m"
overhead_percent = 0.5
[planning]
every = "1h"
[budget]
bytes_per_day = "20G"
endurance_percent_per_day = 0.01
[yield]
rate = "50M"
io_pressure_percent = 10
[recurrence]
advise_after = 2
[store]
keep = "30d"
[[rule]]
path = "/srv/db/**"
cgroup = "system.slice/*.service"
mode = "move"
policy = "gain"
min_gain_s_per_gib = 0.5
[[rule]]
path = "/srv/tmp/**"
mode = "ignore"
"#;

#[test]
fn what_is_left_out_has_a_value_and_moves_nothing() {
    let policy = Policy::parse("paths = [\"/srv\"]").unwrap();
    assert!(!policy.moves() && policy.rules.is_empty());
    let ruling = policy.ruling(Path::new("/srv/x"), false, &Cgroups::default());
    assert_eq!(ruling, Ruling { mode: Mode::Advise, rule: None });
    let words = policy.in_words().join("\n");
    assert!(words.contains("Nothing moves") && words.contains("every 15m"), "{words}");
}

#[test]
fn a_whole_policy_is_what_it_says() {
    let policy = Policy::parse(WHOLE).unwrap();
    assert_eq!(policy.recording.every, Duration::from_secs(900));
    assert_eq!(policy.yielding.rate, Rate::BytesPerSecond(50 << 20));
    assert_eq!(policy.settings(Some(0), Some(7)).min_gain_s_per_gib, Some(0.5));
    let words = policy.in_words().join("\n");
    for part in [
        "Watches /srv, /home.",
        "Rule 1: files that match /srv/db/** and are used by programs in the cgroup system.slice/*.service are moved",
        "Rule 2: files that match /srv/tmp/** are ignored.",
        "All other files are advised on",
        "from 22:00-06:00 (Europe/Berlin)",
        "20.0 GiB",
        "0.01 %",
        "again 2 times",
    ] {
        assert!(words.contains(part), "{part} is not in\n{words}");
    }
}

/// Each is one change to a whole policy; the error must name the line, what is wrong and what to write.
#[test]
fn what_is_wrong_is_named_with_its_line() {
    for (from, to, parts) in [
        ("window = \"1m\"", "window = \"soon\"", &["line 6 (window", "say for example"][..]),
        ("window = \"1m\"", "window = \"0s\"", &["line 6", "above zero"]),
        ("window = \"1m\"", "window = \"16m\"", &["recording", "at least as long"]),
        ("window = \"1m\"", "widow = \"1m\"", &["line 6", "unknown field `widow`", "`window`"]),
        ("[store]", "[shop]", &["line 19", "unknown field `shop`"]),
        ("every = \"1h\"", "every = \"10m\"", &["planning", "at least as long"]),
        ("\"20G\"", "\"20Q\"", &["line 12 (bytes_per_day", "say for example"]),
        ("\"20G\"", "\"0\"", &["line 12", "above zero"]),
        ("= 0.01", "= 101", &["line 13", "per cent"]),
        ("= 0.01", "= nan", &["line 13", "per cent"]),
        ("min_gain_s_per_gib = 0.5", "min_gain_s_per_gib = -1", &["line 26", "0 or more"]),
        ("\"22:00-06:00\"", "\"22-6\"", &["line 3 (hours", "22:00-06:00"]),
        ("Europe/Berlin", "Europe/Bärlin", &["line 4", "Europe/Berlin"]),
        ("\"/srv\", ", "\"srv\", ", &["line 2", "absolute path"]),
        ("\"/srv\", ", "\"/srv/../etc\", ", &["line 2", "absolute path"]),
        ("/srv/db/**", "/srv/[db", &["line 22 (path", "unclosed"]),
        ("/srv/db/**", "srv/db/**", &["rule 1", "\"srv/db/**\" matches no file", "absolute"]),
        ("/srv/db/**", "*/db/**", &["rule 1", "matches no file"]),
        ("/srv/db/**", "/srv/db/", &["rule 1", "matches no file"]),
        ("/srv/db/**", "/srv//db/**", &["rule 1", "matches no file"]),
        ("/srv/db/**", "/srv/../db/**", &["rule 1", "matches no file"]),
        ("system.slice/", "/system.slice/", &["rule 1", "cgroup", "without the slash"]),
        ("mode = \"move\"", "mode = \"mend\"", &["line 24", "`ignore`, `advise`, `move`"]),
        ("policy = \"gain\"", "policy = \"segments\"", &["rule 1", "needs no recording"]),
        ("keep = \"30d\"", "keep = \"1h\"", &["store", "1d"]),
        (
            "path = \"/srv/db/**\"\ncgroup = \"system.slice/*.service\"",
            "",
            &["rule 1", "put it last"],
        ),
        ("advise_after = 2", "advise_after = -2", &["line 18", "invalid value"]),
        ("rate = \"50M\"", "rate = \"0\"", &["line 15", "auto"]),
        ("paths = [\"/srv\", \"/home\"]", "paths = []", &["nothing is watched"]),
        ("paths = [\"/srv\", \"/home\"]", "", &["missing field `paths`"]),
        ("[store]", "[metrics]\ntextfile = \"/etc/shadow\"\n[store]", &["metrics", ".prom"]),
    ] {
        let text = WHOLE.replacen(from, to, 1);
        assert_ne!(text, WHOLE, "{from}");
        let error = Policy::parse(&text).expect_err(to);
        assert!(!error.contains('\n'), "{error}");
        let missing: Vec<_> = parts.iter().filter(|part| !error.contains(**part)).collect();
        assert!(missing.is_empty(), "{missing:?} is not in: {error}");
    }
    let boundless =
        WHOLE.replace("bytes_per_day = \"20G\"\nendurance_percent_per_day = 0.01\n", "");
    let error = Policy::parse(&boundless).unwrap_err();
    assert!(error.contains("nothing limits what is written"), "{error}");
}

#[test]
fn names_from_a_policy_have_no_power_over_a_terminal() {
    let policy =
        Policy::parse("paths = [\"/a\\u001b[2J\"]\n[[rule]]\npath = \"/b\\u202e\"").unwrap();
    let words = policy.in_words().join("\n");
    assert!(!words.contains(['\u{1b}', '\u{202e}']) && words.contains(r"\x1b"), "{words}");
    let error = Policy::parse("paths = [\"/a\"]\nwrong = \"\u{202e}\"").unwrap_err();
    assert!(!error.contains('\u{202e}'), "{error}");
}

#[test]
fn a_backslash_takes_a_character_of_a_pattern_as_it_is() {
    let policy = "paths = ['/a']\n[[rule]]\npath = '/srv/\\[old\\]/{a,b}?/**'\ncgroup = 'x/*'";
    let rule = Policy::parse(policy).unwrap().rules.swap_remove(0);
    let matches = |path: &str| rule.path.as_ref().unwrap().is_match(path);
    assert!(matches("/srv/[old]/a1/x/y") && matches("/srv/[old]/b2/z"));
    assert!(!matches("/srv/o/a1/x") && !matches("/srv/[old]/c1/x"));
}

#[test]
fn the_lower_limit_is_the_budget() {
    let budget = |bytes, share| Budget { bytes_per_day: bytes, endurance_per_day: share };
    let rated = Some(1_000_000);
    assert_eq!(budget(Some(500), None).bytes(rated), Some(500));
    assert_eq!(budget(None, Some(0.0001)).bytes(rated), Some(100));
    assert_eq!(budget(Some(500), Some(0.0001)).bytes(rated), Some(100));
    assert_eq!(budget(Some(50), Some(0.0001)).bytes(rated), Some(50));
    // Without a rating, nothing moves by a share alone.
    assert_eq!(budget(None, Some(0.0001)).bytes(None), None);
    assert_eq!(budget(Some(500), Some(0.0001)).bytes(None), Some(500));
}
