use fragmend_flash::command::{Hint, Units};
use fragmend_flash::drive::*;
use fragmend_flash::geometry::Geometry;
use fragmend_flash::host::{Host, HostPath};
use fragmend_flash::ssd::Ssd;

fn drive(placement: Placement) -> Drive {
    Drive {
        geometry: Geometry {
            channels: 4,
            dies_per_channel: 2,
            planes_per_die: 1,
            planes_together: false,
            planes_read_alone: false,
            blocks_per_plane: 8192,
            pages_per_block: 30,
            flash_page_bytes: 32768,
            one_shot_bytes: 32768,
            mapping_unit_bytes: 4096,
            die_granularity_bytes: 32768,
            over_provisioning_per_mille: 70,
        },
        timing: Timing {
            read_ns: vec![30_013, 42_013],
            small_read_ns: vec![29_760, 41_760],
            small_read_bytes: 4096,
            program_ns: 185_000,
            erase_ns: 2_000_000,
            channel_bytes_per_second: 800 << 20,
            channel_chunk_bytes: 16384,
            link_bytes_per_second: 3360 << 20,
            firmware_read_ns: 30_490,
            firmware_small_read_ns: 21_500,
            small_command_bytes: 4096,
            firmware_busy_ns: 0,
            suspend: None,
        },
        buffer: BufferSpec {
            bytes: 4 << 20,
            command_ns: 4000,
            unit_ns: 460,
            protected: true,
            open_shots: 32,
        },
        firmware: Firmware { placement, ..Firmware::default() },
    }
}

fn main() {
    let path = HostPath {
        system_call_ns: 6000,
        stretch_ns: 1000,
        bio_ns: 1000,
        page_ns: 200,
        request_ns: 1500,
        end_ns: 1000,
        plug_requests: 16,
        plug_bytes: 128 << 10,
        request_bytes: 256 << 10,
        queue_depth: 1023,
        bio_bytes: 1 << 20,
    };
    let mut seed = 42u64;
    let mut rnd = move || {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) as u32
    };
    for (name, placement, hinted) in [
        ("none", Placement::RoundRobin, false),
        ("fast24", Placement::DieAffine, true),
        ("ours", Placement::FileAffine, true),
    ] {
        for (load, over, random) in [
            ("append worst", false, false),
            ("append random", false, true),
            ("overwrite worst", true, false),
            ("overwrite random", true, true),
        ] {
            let mut ssd = Ssd::new(&drive(placement)).unwrap();
            let mut host = Host::new(&path, &mut ssd, 0);
            // file at units 1<<20.., dummy elsewhere
            let mut file: Vec<Units> = Vec::new();
            let mut next = 0u32;
            let mut alloc = |n: u32| {
                let u = Units::new(next, n);
                next += n;
                u
            };
            if over {
                let whole = alloc(2048);
                for k in 0..256 {
                    file.push(Units::new(whole.start + k * 8, 8));
                    host.write(&[file[k as usize]], Hint::None).unwrap();
                }
            }
            for k in 0..256u32 {
                let hint;
                let u = if over {
                    hint = Hint::Overwrite;
                    file[k as usize]
                } else {
                    let u = alloc(8);
                    hint = file
                        .last()
                        .map_or(Hint::None, |l| Hint::Append { predecessor: l.end() - 1 });
                    file.push(u);
                    u
                };
                host.write(&[u], if hinted { hint } else { Hint::None }).unwrap();
                host.flush().unwrap();
                let n = if random { 1 + rnd() % 32 } else { 7 };
                let d = alloc(n * 8);
                host.write(&[d], Hint::None).unwrap();
                host.flush().unwrap();
            }
            let idle = host.device.idle_at();
            host.now = host.now.max(idle);
            let t = host.now;
            for m in 0..8 {
                let mut ext: Vec<Units> = Vec::new();
                for u in &file[m * 32..(m + 1) * 32] {
                    match ext.last_mut() {
                        Some(l) if l.end() == u.start => l.count += u.count,
                        _ => ext.push(*u),
                    }
                }
                host.read(&ext).unwrap();
            }
            let el = host.now - t;
            println!("{name:8} {load:18} {:8.1} MiB/s", 8e9 / el as f64);
        }
    }
    let mut ssd = Ssd::new(&drive(Placement::RoundRobin)).unwrap();
    let mut host = Host::new(&path, &mut ssd, 0);
    host.write(&[Units::new(0, 2048)], Hint::None).unwrap();
    let idle = host.device.idle_at();
    host.now = idle;
    let t = idle;
    for m in 0..8 {
        host.read(&[Units::new(m * 256, 256)]).unwrap();
    }
    println!("contiguous {:8.1}", 8e9 / (host.now - t) as f64);
}
