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

/* Whether what reaches the device there is recorded, and so stands for as many: one per part. */
static __always_inline __u32 sampled(__u64 inode, __u64 offset)
{
	__u64 mask = control.device_mask, turn = 0, place;

	if (!mask)
		return 1;
	if (control.turns)
		turn = (bpf_ktime_get_ns() - config.start_ns) >> TURN_SHIFT;
	place = inode * 0x9e3779b97f4a7c15ULL + (offset >> config.region_shift);
	/* In which turn of a round a place is recorded says nothing of the other rounds. */
	place = mix(place + (turn & ~mask) * 0xd1342543de82ef95ULL);
	return !((place ^ turn) & mask) ? mask + 1 : 0;
}

#endif
