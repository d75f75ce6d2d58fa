//! Compiles the kernel side of the recorder with clang: BPF byte code with CO-RE relocations, which
//! the loader applies to the running kernel. It does not depend on the build machine's kernel.

use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=bpf");
    println!("cargo:rerun-if-env-changed=CLANG");
    let variable = |name: &str| std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"));
    let arch = match variable("CARGO_CFG_TARGET_ARCH").as_str() {
        "x86_64" => "x86",
        "aarch64" => "arm64",
        other => panic!("the recorder knows the system calls of x86_64 and arm64, not of {other}"),
    };
    let object = PathBuf::from(variable("OUT_DIR")).join("recorder.bpf.o");
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    // libbpf's own headers, from the copy that libbpf-sys brings along.
    let libbpf = variable("DEP_BPF_INCLUDE");
    let status = Command::new(&clang)
        .args(["-g", "-O2", "-target", "bpf", "-mcpu=v3", "-Wall"])
        .arg(format!("-D__TARGET_ARCH_{arch}"))
        .arg(format!("-I{libbpf}"))
        // Its line information has no paths of this machine: two builds are to be the same bytes.
        .arg(format!("-ffile-prefix-map={libbpf}=libbpf"))
        .arg(format!("-ffile-prefix-map={}=trace", variable("CARGO_MANIFEST_DIR")))
        .args(["-c", "bpf/recorder.bpf.c", "-o"])
        .arg(&object)
        .status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{clang} cannot compile bpf/recorder.bpf.c ({status})"),
        Err(e) => panic!("{clang} cannot be started ({e}): install clang 14 or newer"),
    }
}
