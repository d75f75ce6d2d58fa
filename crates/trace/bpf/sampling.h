/* Which accesses are recorded when recording all of them would cost too much.
 *
 * What programs ask for is recorded in turns with pauses. What reaches the device is recorded all the time, but
 * perhaps in a part of all places only. A place is an aligned region of a file; a hash of its inode and region (SHARDS,
 * FAST'15) says to which part it belongs. The parts take turns, so that each place is recorded for the same time: in
 * each round, each place once, in a turn that differs from round to round and from place to place, so that no load is in
 * step with them: of two reads at a fixed distance, it depends on no other two whether both are recorded.
 * Each event says how many it stands for. */
#ifndef FRAGMEND_SAMPLING_H
#define FRAGMEND_SAMPLING_H

/* User space changes this during the recording. */
struct control {
	__u32 device_mask; /* the number of parts in which is recorded what reaches the device, a power of two, less one */
	__u32 weight; /* what a program asks for stands for as many; 0 while that is not watched */
	__u32 turns; /* whether the parts take turns; otherwise it is the first one all the time */
	__u32 pad;
};

volatile struct control control = { 0, 1, 0, 0 };

static __always_inline __u32 mix(__u64 x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
	return (x ^ x >> 31) >> 40;
}

static __always_inline __u64 place_of(__u64 inode, __u64 offset)
{
	return inode * 0x9e3779b97f4a7c15ULL + (offset >> config.region_shift);
}

static __always_inline __u64 turn_at(__u64 ns)
{
	return (ns - config.start_ns) >> TURN_SHIFT;
}

/* Says in which of the `mask + 1` turns of a round, that of this turn, a place is recorded: which says nothing of other
 * rounds. */
static __always_inline __u32 own_turn(__u64 place, __u64 turn, __u64 mask)
{
	return mix(place + (turn & ~mask) * 0xd1342543de82ef95ULL);
}

/* The clock at some time in a tick, on one processor. To look at the clock costs more than all else that is done for a
 * place that is not recorded. */
struct tick {
	__u64 jiffies;
	__u64 ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tick);
} ticks SEC(".maps");

/* How many turns a tick may last (10 ms), and a little more. */
#define TURNS_IN_TICK 6

/* Whether a place may have its turn in the rest of a tick in which it was already `ns`. */
static __always_inline int may_have_turn(__u64 place, __u64 mask, __u64 ns)
{
	__u64 turn = turn_at(ns);

	/* In the next round it is in another turn. */
	if ((turn & mask) + TURNS_IN_TICK > mask)
		return 1;
	return ((own_turn(place, turn, mask) - turn) & mask) <= TURNS_IN_TICK;
}

/* Whether a place has its turn, and when that was; where they take none, the same ones have it all the time. */
static __always_inline int has_turn(__u64 place, __u64 mask, __u64 *time_ns)
{
	__u64 jiffies, ns, turn;
	struct tick *tick;
	__u32 zero = 0;

	if (!control.turns)
		return !(own_turn(place, 0, mask) & mask);
	tick = bpf_map_lookup_elem(&ticks, &zero);
	if (!tick)
		return 0;
	/* Before the clock: what is noted is never of a later tick than it says. */
	jiffies = bpf_jiffies64();
	if (mask >= 4 * TURNS_IN_TICK && tick->jiffies == jiffies && !may_have_turn(place, mask, tick->ns))
		return 0;
	ns = bpf_ktime_get_ns();
	tick->ns = ns;
	tick->jiffies = jiffies;
	turn = turn_at(ns);
	*time_ns = ns - config.start_ns;
	return !((own_turn(place, turn, mask) ^ turn) & mask);
}

/* Whether what reaches the device there is recorded, and so stands for as many: one per part. `time_ns` is set if the clock
 * decides: the event has that time, however much later it is emitted, because its turn says what it was recorded with. */
static __always_inline __u32 sampled(__u64 inode, __u64 offset, __u64 *time_ns)
{
	__u64 mask = control.device_mask;

	return !mask || has_turn(place_of(inode, offset), mask, time_ns) ? mask + 1 : 0;
}

#endif
