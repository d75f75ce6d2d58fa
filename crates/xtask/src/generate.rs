//! Man pages, shell completions, JSON schemas, and the list of dependencies' licences.
//!
//! They are kept in the repository, so that packagers need not run anything; `--check` in the continuous
//! integration keeps them current. A file that is no longer made is stale too.

use crate::licences;
use anyhow::{Context, bail};
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use fragmend::cli::Cli;
use schemars::{JsonSchema, Schema, schema_for};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Directories that hold nothing but generated files.
const DIRECTORIES: [&str; 3] = ["man", "completions", "schemas"];

/// Content by path, relative to the workspace.
pub type Files = BTreeMap<PathBuf, Vec<u8>>;

/// Makes every file of the workspace with this top directory.
///
/// # Errors
/// When a generator fails, which is a mistake in the definitions, or a licence is not allowed.
pub fn files(root: &Path) -> anyhow::Result<Files> {
    let mut files = Files::new();
    let mut command = Cli::command();
    command.build();
    man(&command, &mut files)?;
    for (shell, name) in
        [(Shell::Bash, "fragmend.bash"), (Shell::Zsh, "_fragmend"), (Shell::Fish, "fragmend.fish")]
    {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut Cli::command(), "fragmend", &mut text);
        files.insert(Path::new("completions").join(name), text);
    }
    for (name, schema) in schemas() {
        let mut text = serde_json::to_vec_pretty(&schema)?;
        text.push(b'\n');
        files.insert(Path::new("schemas").join(format!("{name}.schema.json")), text);
    }
    files.insert(licences::LIST.into(), licences::list(root)?.into_bytes());
    Ok(files)
}

/// A command and those below it.
fn below(command: &Command) -> Vec<&Command> {
    let verbs = command.get_subcommands().filter(|c| c.get_name() != "help");
    std::iter::once(command).chain(verbs.flat_map(below)).collect()
}

/// One page for the program and one for each verb, each with the exit codes at its end.
fn man(command: &Command, files: &mut Files) -> anyhow::Result<()> {
    let pages = below(command);
    let names: Vec<String> = pages.iter().map(|page| page_name(page)).collect();
    for page in pages {
        let name = page_name(page);
        let source = concat!("fragmend ", env!("CARGO_PKG_VERSION"));
        // With a date, the file would differ every day.
        let page = clap_mangen::Man::new(page.clone().after_help(None::<&str>))
            .source(source)
            .manual("fragmend manual")
            .date("");
        let mut text = Vec::new();
        page.render(&mut text)?;
        // The empty date is left out unquoted, which would shift what follows it.
        let text = String::from_utf8(text)?
            .replace(&format!("1  \"{source}"), &format!("1 \"\" \"{source}"));
        let others: Vec<String> =
            names.iter().filter(|n| **n != name).map(|n| format!("\\fB{n}\\fR(1)")).collect();
        let exit = fragmend::exit::HELP.lines().collect::<Vec<_>>();
        let (title, codes) = exit.split_first().context("exit codes have a title")?;
        let text = format!(
            "{text}.SH \"EXIT STATUS\"\n{title}\n.nf\n{}\n.fi\n.SH \"SEE ALSO\"\n{}\n",
            codes.join("\n"),
            others.join(", "),
        );
        files.insert(Path::new("man").join(format!("{name}.1")), text.into_bytes());
    }
    Ok(())
}

fn page_name(command: &Command) -> String {
    command.get_display_name().unwrap_or(command.get_name()).to_owned()
}

/// The formats that other programs read and write.
fn schemas() -> Vec<(&'static str, Schema)> {
    fn schema_of<T: JsonSchema>() -> Schema {
        schema_for!(T)
    }
    vec![
        ("scan", schema_of::<fragmend_report::scan::ScanReport>()),
        ("record", schema_of::<fragmend_report::record::RecordReport>()),
        ("plan", schema_of::<fragmend_report::plan::PlanReport>()),
        ("plan-file", schema_of::<fragmend_plan::Plan>()),
        ("apply-event", schema_of::<fragmend_apply::Event>()),
        ("probe", schema_of::<fragmend_report::probe::ProbeReport>()),
        ("profile-file", schema_of::<fragmend_device::profile::Profile>()),
        ("report", schema_of::<fragmend_page::PageReport>()),
        ("recover", schema_of::<fragmend_report::recover::RecoverReport>()),
        ("watch-event", schema_of::<fragmend_watch::event::Line>()),
        ("lab-list", schema_of::<fragmend_lab::catalog::Catalog>()),
        ("lab-run", schema_of::<fragmend_lab::experiment::Report>()),
        ("lab-compare", schema_of::<fragmend_lab::compare::report::Comparison>()),
        ("lab-serve", schema_of::<fragmend_lab::serve::Report>()),
        ("lab-serve-stats", schema_of::<fragmend_lab::serve::stats::Stats>()),
    ]
}

/// Writes every file, and removes what is no longer made.
///
/// # Errors
/// When a file cannot be written.
pub fn write(root: &Path, files: &Files) -> anyhow::Result<()> {
    for stale in strangers(root, files)? {
        std::fs::remove_file(&stale).with_context(|| stale.display().to_string())?;
    }
    for (path, content) in files {
        let path = root.join(path);
        let written = match path.parent() {
            Some(dir) => std::fs::create_dir_all(dir),
            None => Ok(()),
        };
        written
            .and_then(|()| std::fs::write(&path, content))
            .with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// Compares every file with what is there.
///
/// # Errors
/// When one differs, is missing or should not be there; the error names all of them.
pub fn check(root: &Path, files: &Files) -> anyhow::Result<()> {
    let is_stale = |(path, content): &(&PathBuf, &Vec<u8>)| {
        std::fs::read(root.join(path)).map_or(true, |found| found != **content)
    };
    let mut stale: Vec<String> =
        files.iter().filter(is_stale).map(|(path, _)| path.display().to_string()).collect();
    for path in strangers(root, files)? {
        stale.push(path.strip_prefix(root).unwrap_or(&path).display().to_string());
    }
    if !stale.is_empty() {
        bail!("stale: {}; run 'make generate' and commit the result", stale.join(", "));
    }
    Ok(())
}

/// Files in these directories that are not made any more.
fn strangers(root: &Path, files: &Files) -> anyhow::Result<Vec<PathBuf>> {
    let mut strangers = Vec::new();
    for directory in DIRECTORIES {
        let Ok(entries) = std::fs::read_dir(root.join(directory)) else { continue };
        for entry in entries {
            let name = entry?.file_name();
            if !files.contains_key(&Path::new(directory).join(&name)) {
                strangers.push(root.join(directory).join(name));
            }
        }
    }
    strangers.sort();
    Ok(strangers)
}
