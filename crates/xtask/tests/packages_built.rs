//! What is packaged: static binaries for two architectures, and packages that install, upgrade and go without a trace.
//! `make test` builds them, unoptimized, before the tests run.

use fragmend_testbed::packages::{binary, fragmend, made, repository, script};
use fragmend_testbed::process::{finish, run};
use fragmend_testbed::scratch;
use fragmend_testbed::tools::sha256;

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The architectures that are packaged, as Rust and readelf name them.
const ARCHITECTURES: [(&str, &str); 2] = [("x86_64", "X86-64"), ("aarch64", "AArch64")];

#[test]
fn binaries_are_for_their_architecture_and_need_no_loader_and_no_library() {
    for (arch, machine) in ARCHITECTURES {
        let path = binary(arch).to_string_lossy().into_owned();
        let read = |what| run("readelf", ["--wide", what, &path]);
        assert!(read("--file-header").contains(machine), "{arch}");
        assert!(!read("--program-headers").contains("INTERP"), "{arch}");
        assert!(!read("--dynamic").contains("NEEDED"), "{arch}");
    }
}

/// Where the kernel keeps the number of a system call has another name on each architecture, and the names of all fields
/// that the kernel side of the recorder reads are in its type information.
#[test]
fn a_binary_has_the_kernel_side_for_its_own_architecture() {
    let has = |arch, name: &[u8]| {
        let bytes = std::fs::read(binary(arch)).unwrap();
        bytes.windows(name.len()).any(|window| window == name)
    };
    assert!(has("x86_64", b"\0orig_ax\0") && !has("x86_64", b"\0syscallno\0"));
    assert!(has("aarch64", b"\0syscallno\0") && !has("aarch64", b"\0orig_ax\0"));
}

#[test]
fn binaries_of_both_architectures_scan_alike() {
    let dir = scratch::directory("packages");
    for n in 0_usize..20 {
        std::fs::write(dir.path().join(n.to_string()), vec![1; n * 5000]).unwrap();
    }
    run("sync", ["--file-system".as_ref(), dir.path().as_os_str()]);
    let [version, scan] = [&["--version"][..], &["scan", "--json"]].map(|args| {
        ARCHITECTURES.map(|(arch, ..)| {
            let mut command = fragmend(arch);
            command.args(args);
            if args.len() > 1 {
                command.arg(dir.path());
            }
            finish(&mut command).expect(&[0])
        })
    });
    assert_eq!(version[0], format!("fragmend {VERSION}\n"));
    assert_eq!(version[0], version[1]);
    let scan = scan.map(|text| serde_json::from_str::<serde_json::Value>(&text).unwrap());
    assert_eq!(scan[0]["totals"]["files"], 20, "{}", scan[0]);
    assert_eq!(scan[0], scan[1]);
}

/// One seed yields one result, on any machine.
#[test]
fn binaries_of_both_architectures_repeat_an_experiment_to_the_byte() {
    let [here, there] = ARCHITECTURES.map(|(arch, _)| {
        finish(fragmend(arch).args(["lab", "run", "D-fig7", "--json"])).expect(&[0])
    });
    assert!(here.contains("\"experiment\":\"D-fig7\""), "{here}");
    assert_eq!(here, there);
}

#[test]
fn an_archive_has_the_binary_its_documents_and_all_licences() {
    let out = made(&["archive"]);
    let sums = std::fs::read_to_string(out.path().join("SHA256SUMS")).unwrap();
    for (arch, ..) in ARCHITECTURES {
        let name = format!("fragmend-{VERSION}-{arch}-linux");
        let archive = out.path().join(format!("{name}.tar.gz"));
        assert!(sums.contains(&format!("{}  {name}.tar.gz\n", sha256(&archive))), "{sums}");
        run("tar", ["-C".as_ref(), out.path().as_os_str(), "-xzf".as_ref(), archive.as_os_str()]);
        let unpacked = |path: &str| std::fs::read(out.path().join(&name).join(path)).unwrap();
        assert!(unpacked("bin/fragmend") == std::fs::read(binary(arch)).unwrap(), "{arch}");
        for page in std::fs::read_dir(repository("man")).unwrap() {
            unpacked(&format!("share/man/man1/{}", page.unwrap().file_name().display()));
        }
        let texts =
            String::from_utf8(unpacked("share/doc/fragmend/third-party-texts.txt")).unwrap();
        for linked in ["==== libbpf-sys-", "libelf-dev of Debian", "libc6-dev of Debian", "libgcc-"]
        {
            assert!(texts.contains(linked), "{linked}");
        }
    }
}

#[test]
fn a_package_is_the_same_bytes_each_time_installs_upgrades_and_leaves_nothing() {
    let version = format!("{VERSION}-1");
    let [older, newer, again] =
        ["0.0.9-1", &version, &version].map(|version| made(&["deb", version, "amd64"]));
    let older = older.path().join("fragmend_0.0.9-1_amd64.deb");
    let [newer, again] =
        [&newer, &again].map(|out| out.path().join(format!("fragmend_{version}_amd64.deb")));
    assert!(std::fs::read(&newer).unwrap() == std::fs::read(again).unwrap());
    finish(script("try").arg(older).arg(newer)).expect(&[0]);
}
