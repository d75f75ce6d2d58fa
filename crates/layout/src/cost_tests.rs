//! What a cost model says of reads.

use super::*;

fn cost(request_bytes: u64, in_flight: u32, burst_ns: u64, interval_ns: u64) -> RequestCost {
    RequestCost { request_bytes, in_flight, burst_ns, interval_ns, split_ns: None, stream_ns: None }
}

/// One request at a time: 100 ns each, and 1 ns a byte.
fn card() -> CostModel {
    let one = |bytes, n: u32| cost(bytes, n, u64::from(n) * (100 + bytes), 100 + bytes);
    let reads = [100, 1000].into_iter().flat_map(|b| [1, 4, 32].map(|n| one(b, n)));
    CostModel::new(CostSource::Probed, reads.collect(), Vec::new()).unwrap()
}

fn split(bytes: u64, requests: u64) -> Split {
    Split { requests, ..Split::whole(bytes) }
}

#[test]
fn each_request_of_a_serial_device_costs_the_same_at_any_depth() {
    let card = card();
    for depth in [0.0, 1.0, 2.5, 64.0] {
        for requests in [1, 2, 7, 32, 100] {
            let ns = card.read_ns(split(10_000, requests), depth);
            let expected = 10_000.0 + 100.0 * requests as f64;
            assert!((ns - expected).abs() < 1e-6, "{requests} at {depth}: {ns}");
        }
    }
}

#[test]
fn what_is_hidden_behind_the_queue_costs_nothing() {
    // Latency 80, of which any number overlaps; 1 ns between completions.
    let wide = |n: u32| cost(4096, n, 80 + u64::from(n), (80 / u64::from(n)).max(1));
    let wide = [1, 4, 32, 128].map(wide).to_vec();
    let wide = CostModel::new(CostSource::Observed, wide, Vec::new()).unwrap();
    let alone = wide.read_ns(split(4096, 1), 1.0);
    assert_eq!((alone, wide.read_ns(split(4 * 4096, 4), 1.0)), (81.0, 84.0));
    assert!(wide.read_ns(split(4096, 1), 32.0) <= 81.0 / 32.0);
}

#[test]
fn a_split_costs_what_neighbours_do() {
    // At random places, four of 1000 bytes last four times as long as one, as if they met on a die; of one contiguous
    // part they last 10 % longer, and each further one 20 ns.
    let one = |request_bytes, in_flight, burst_ns, interval_ns, split_ns| RequestCost {
        split_ns,
        stream_ns: None,
        ..cost(request_bytes, in_flight, burst_ns, interval_ns)
    };
    let reads = vec![
        one(1000, 1, 400, 400, None),
        one(1000, 4, 1600, 100, Some(440)),
        one(1000, 8, 3200, 80, Some(520)),
        one(8000, 1, 500, 500, None),
        one(8000, 4, 2000, 400, None),
        one(8000, 8, 4000, 400, None),
    ];
    let drive = CostModel::new(CostSource::Probed, reads, Vec::new()).unwrap();
    let ns = |bytes, requests, depth| drive.read_ns(split(bytes, requests), depth);
    assert_eq!([ns(1000, 1, 1.0), ns(4000, 4, 1.0), ns(8000, 8, 1.0)], [400.0, 440.0, 520.0]);
    assert_eq!(ns(16_000, 16, 1.0), 520.0 + 8.0 * 20.0);
    let apart =
        |requests, depth| drive.unseeking_apart(split(1000 * requests, requests), depth).read_ns(0);
    assert_eq!([apart(1, 1.0), apart(4, 1.0), apart(10, 1.0)], [400.0, 1600.0, 3360.0]);
    assert_eq!(apart(4, 4.0), 400.0);
    assert!(
        !drive.places_matter() && !card().places_matter(),
        "four last four times as long as one"
    );
    // With others in flight, the drive is as busy with it as with one request of 8000 bytes: that needs more than eight.
    assert_eq!([ns(8000, 1, 4.0), ns(8000, 8, 4.0)], [400.0; 2]);
    assert_eq!(ns(64_000, 64, 64.0), 400.0 + 56_000.0 * 320.0 / 7000.0);
}

#[test]
fn what_one_more_request_costs_may_be_known() {
    let card = card();
    let ns = |requests, depth, more: f64| {
        card.unseeking_with(split(10_000, requests), depth, more).read_ns(0)
    };
    let whole = card.read_ns(split(10_000, 1), 1.0);
    assert_eq!([ns(1, 1.0, 7.0), ns(5, 1.0, 7.0)], [whole, whole + 28.0]);
    assert_eq!(ns(3, 4.0, 7.0), card.read_ns(split(10_000, 1), 4.0) + 14.0);
    // Splits may be quicker, but not without end.
    assert_eq!([ns(3, 1.0, -50.0), ns(1000, 1.0, -50.0)], [whole - 100.0, whole / 4.0]);
}

#[test]
fn parts_that_were_written_at_different_times_may_meet() {
    let one = |request_bytes, in_flight, burst_ns, split_ns| RequestCost {
        split_ns,
        stream_ns: None,
        ..cost(request_bytes, in_flight, burst_ns, 100)
    };
    let reads = vec![
        one(1000, 1, 400, None),
        one(1000, 2, 700, Some(450)),
        one(2000, 1, 410, None),
        one(2000, 2, 900, Some(500)),
    ];
    let drive = CostModel::new(CostSource::Probed, reads, Vec::new()).unwrap();
    let ns = |torn| drive.read_ns(Split { torn, ..split(2000, 2) }, 1.0);
    assert_eq!([ns(false), ns(true)], [450.0, 450.0 + 250.0]);
    assert!(drive.places_matter());
    let torn = Split { torn: true, ..split(10_000, 2) };
    assert_eq!(card().read_ns(torn, 1.0), card().read_ns(split(10_000, 2), 1.0));
}

#[test]
fn a_seek_costs_by_its_distance() {
    let seeks = [(0, 0), (1000, 50), (3000, 90)];
    let seeks = seeks.map(|(distance_bytes, ns)| SeekCost {
        distance_bytes,
        ns,
        back_ns: (distance_bytes == 1000).then_some(80),
    });
    let seeks = seeks.to_vec();
    let disk = CostModel::new(CostSource::Probed, card().reads, seeks).unwrap();
    let distances = [0, 500, 1000, 2000, 3000, 1 << 40];
    assert_eq!(distances.map(|distance| disk.seek_ns(7, 7 + distance)), [0, 25, 50, 70, 90, 90]);
    // Backward.
    assert_eq!(distances.map(|distance| disk.seek_ns(distance, 0)), [0, 40, 80, 85, 90, 90]);
    assert_eq!(disk.seek_either_ns(1000), 65);
    let with = disk.read_ns(Split { seek_ns: 70, ..split(1000, 2) }, 1.0);
    assert_eq!(with, disk.read_ns(split(1000, 2), 1.0) + 70.0);
    // Nothing overlaps with a seek, however many reads are in flight.
    let with = disk.read_ns(Split { seek_ns: 70, ..split(1000, 2) }, 8.0);
    assert_eq!(with, disk.read_ns(split(1000, 2), 8.0) + 70.0);
}

#[test]
fn a_stream_is_as_fast_as_the_longest_requests() {
    assert_eq!(card().stream_ns(3 << 20), 3.0 * (100.0 + 1_048_576.0));
}

#[test]
fn no_more_figures_are_read_than_a_model_has() {
    let figure = r#"{"request_bytes":1,"in_flight":1,"burst_ns":1,"interval_ns":1},"#;
    let text = |n: usize| {
        let list = figure.repeat(n);
        format!(r#"{{"source":"probed","reads":[{}]}}"#, list.trim_end_matches(','))
    };
    let read = |n| serde_json::from_str::<CostModel>(&text(n)).map_err(|e| e.to_string());
    assert!(read(1).is_ok());
    assert!(read(MOST).unwrap_err().contains("twice"));
    assert!(read(MOST + 1).unwrap_err().contains("1024"));
}

#[test]
fn senseless_figures_are_no_model() {
    let of = |reads: &[RequestCost]| CostModel::new(CostSource::Probed, reads.to_vec(), vec![]);
    let (a, b) = (cost(1, 1, 5, 5), cost(1, 2, 5, 5));
    assert!(of(&[b, a]).is_ok());
    for reads in [
        &[][..],
        &[a, a],
        &[a, b, cost(2, 1, 5, 5)],
        &[a, cost(2, 2, 5, 5)],
        &[cost(0, 1, 5, 5)],
        &[cost(1, 0, 5, 5)],
        &[cost(1, 1, 0, 5)],
        &[cost(1, 1, 5, u64::MAX)],
    ] {
        assert!(of(reads).is_err(), "{reads:?}");
    }
    let twice = vec![SeekCost { distance_bytes: 1, ns: 1, back_ns: None }; 2];
    assert!(CostModel::new(CostSource::Probed, vec![a], twice).is_err());
}
