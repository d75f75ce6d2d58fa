//! What every kernel side needs of the loader: privileges and types to begin with, its maps by name, and errors that say
//! what the kernel had to say.

use crate::TraceError;
use libbpf_rs::btf::Btf;
use libbpf_rs::{MapCore, MapFlags, MapHandle, Object, PrintLevel};
use std::path::Path;
use std::sync::Mutex;

/// The variables of a kernel side that change while it runs.
pub(crate) const CONTROL: &str = ".data";

/// A capability that a kernel side needs (`capabilities(7)`).
pub(crate) struct Capability {
    /// Its number.
    pub bit: u32,
    /// Its name.
    pub name: &'static str,
}

/// To trace.
pub(crate) const PERFMON: Capability = Capability { bit: 38, name: "CAP_PERFMON" };
/// To load programs.
pub(crate) const BPF: Capability = Capability { bit: 39, name: "CAP_BPF" };

/// The types of the running kernel, if it and this process have what `what` needs.
///
/// # Errors
/// Something is missing.
pub(crate) fn ready(what: &str, needed: &[Capability]) -> Result<Btf<'static>, TraceError> {
    check_capabilities(what, needed)?;
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        return Err(TraceError::Kernel(format!(
            "this kernel carries no BTF type information, which {what} needs: use a kernel built with \
             CONFIG_DEBUG_INFO_BTF=y"
        )));
    }
    libbpf_rs::set_print(Some((PrintLevel::Warn, keep_warning)));
    Btf::from_vmlinux().map_err(|e| kernel("cannot read the kernel's BTF", &e))
}

/// A map of a loaded object, by its name.
pub(crate) fn map(object: &Object, name: &str) -> Result<MapHandle, TraceError> {
    let is_it = |m: &libbpf_rs::Map<'_>| {
        let found = m.name().to_string_lossy();
        found == name || name == CONTROL && found.ends_with(CONTROL)
    };
    let found = object.maps().find(is_it);
    let found = found.ok_or_else(|| TraceError::Kernel(format!("no map {name} was loaded")))?;
    MapHandle::try_from(&found).map_err(|e| kernel(&format!("cannot open the map {name}"), &e))
}

/// Sets an element of a map.
pub(crate) fn put(map: &MapHandle, key: &[u8], value: &[u8]) -> Result<(), TraceError> {
    map.update(key, value, MapFlags::ANY)
        .map_err(|e| kernel(&format!("cannot fill the table {}", map.name().to_string_lossy()), &e))
}

/// The last warning of libbpf, which would be printed to stderr otherwise.
static WARNING: Mutex<String> = Mutex::new(String::new());

fn keep_warning(_: PrintLevel, text: String) {
    if let Ok(mut warning) = WARNING.lock() {
        *warning = text.lines().last().unwrap_or_default().trim().to_owned();
    }
}

/// An error of the kernel or of libbpf, with its last warning.
pub(crate) fn kernel(what: &str, error: &libbpf_rs::Error) -> TraceError {
    let warning = WARNING.lock().map(|w| w.clone()).unwrap_or_default();
    let sep = if warning.is_empty() { "" } else { "; " };
    TraceError::Kernel(format!("{what}: {error}{sep}{warning}"))
}

/// Names all missing capabilities at once, instead of failing at the first.
fn check_capabilities(what: &str, needed: &[Capability]) -> Result<(), TraceError> {
    const SYS_ADMIN: u32 = 21;
    let effective = effective_capabilities().unwrap_or(0);
    let has = |bit: u32| effective >> bit & 1 == 1;
    let lacks = |bit: u32| !(has(bit) || bit > SYS_ADMIN && has(SYS_ADMIN));
    let missing: Vec<_> = needed.iter().filter(|c| lacks(c.bit)).map(|c| c.name).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(TraceError::Kernel(format!(
        "{what} needs the privilege {}: run it as root (sudo), or give these capabilities",
        missing.join(", ")
    )))
}

fn effective_capabilities() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let hex = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(hex.trim(), 16).ok()
}
