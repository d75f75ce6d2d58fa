# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_fragmend_global_optspecs
    string join \n json q/quiet h/help V/version
end

function __fish_fragmend_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_fragmend_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_fragmend_using_subcommand
    set -l cmd (__fish_fragmend_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c fragmend -n "__fish_fragmend_needs_command" -l json -d 'Print one JSON document (JSON Lines for long-running verbs) instead of text'
complete -c fragmend -n "__fish_fragmend_needs_command" -s q -l quiet -d 'No progress and no hints; results and errors only'
complete -c fragmend -n "__fish_fragmend_needs_command" -s h -l help -d 'Print help'
complete -c fragmend -n "__fish_fragmend_needs_command" -s V -l version -d 'Print version'
complete -c fragmend -n "__fish_fragmend_needs_command" -f -a "scan" -d 'How fragmented files are, where, and what it costs'
complete -c fragmend -n "__fish_fragmend_needs_command" -f -a "record" -d 'Trace what programs read and write, into a Parquet file'
complete -c fragmend -n "__fish_fragmend_needs_command" -f -a "plan" -d 'Choose what is worth moving, and explain it'
complete -c fragmend -n "__fish_fragmend_needs_command" -f -a "apply" -d 'Move the ranges of a plan, with a receipt for each'
complete -c fragmend -n "__fish_fragmend_needs_command" -f -a "auto" -d 'Record, plan and apply in one go'
complete -c fragmend -n "__fish_fragmend_needs_command" -f -a "top" -d 'Watch a file system while it is used: a map, the files by the time that is lost because of them, and the present plan'
complete -c fragmend -n "__fish_fragmend_needs_command" -f -a "probe" -d 'Measure what reading a device costs, and how its flash is organized; reads only'
complete -c fragmend -n "__fish_fragmend_needs_command" -f -a "report" -d 'One HTML page of scans, plans, receipts, profiles and results of the lab'
complete -c fragmend -n "__fish_fragmend_needs_command" -f -a "recover" -d 'Put back what an interrupted `--engine rewrite` left unfinished'
complete -c fragmend -n "__fish_fragmend_needs_command" -f -a "watch" -d 'Record and plan again and again, advise, and move what a policy permits, within a daily budget'
complete -c fragmend -n "__fish_fragmend_needs_command" -f -a "lab" -d 'Repeat the papers\' experiments on simulated drives, or run a load of your own on one'
complete -c fragmend -n "__fish_fragmend_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c fragmend -n "__fish_fragmend_using_subcommand scan" -l top -d 'How many of the worst files the text lists; JSON has them all' -r
complete -c fragmend -n "__fish_fragmend_using_subcommand scan" -l source -d 'Where layouts come from' -r -f -a "auto\t'In bulk where that is possible and pays, after one sync of the file system; FIEMAP elsewhere'
fiemap\t'Open every file and ask the kernel (FIEMAP)'
bulk\t'Read ext4\'s inode tables from the block device, or the reverse mapping of an XFS; needs root'"
complete -c fragmend -n "__fish_fragmend_using_subcommand scan" -l cross-file-systems -d 'Enter other file systems mounted below a path'
complete -c fragmend -n "__fish_fragmend_using_subcommand scan" -l free -d 'Show the free space of each file system, too: how long its runs are'
complete -c fragmend -n "__fish_fragmend_using_subcommand scan" -l layouts -d 'Write where each file\'s data is, too (`layout`), which the lab reads, and what is free and metadata (`spaces`); with --json only'
complete -c fragmend -n "__fish_fragmend_using_subcommand scan" -l check -d 'Put the result into the exit status: it contains 2 if something could be improved'
complete -c fragmend -n "__fish_fragmend_using_subcommand scan" -l json -d 'Print one JSON document (JSON Lines for long-running verbs) instead of text'
complete -c fragmend -n "__fish_fragmend_using_subcommand scan" -s q -l quiet -d 'No progress and no hints; results and errors only'
complete -c fragmend -n "__fish_fragmend_using_subcommand scan" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c fragmend -n "__fish_fragmend_using_subcommand record" -s o -l output -d 'The trace file to write (Parquet), readable by its owner alone; an older trace of this name is replaced at the end. - is standard output' -r -F
complete -c fragmend -n "__fish_fragmend_using_subcommand record" -l duration -d 'How long, for example 90s, 5m or 1h 30m; until Ctrl-C if not given' -r
complete -c fragmend -n "__fish_fragmend_using_subcommand record" -l level -d 'What to watch' -r -f -a "both\t'Both of the following, side by side; where the kernel does not show what misses the page cache, as syscall'
syscall\t'Reads, writes and page faults as programs issue them'
miss\t'What the page cache reads from the device, and direct I/O'"
complete -c fragmend -n "__fish_fragmend_using_subcommand record" -l pid -d 'Only this process and its children; may be repeated' -r
complete -c fragmend -n "__fish_fragmend_using_subcommand record" -l comm -d 'Only threads of this command name' -r
complete -c fragmend -n "__fish_fragmend_using_subcommand record" -l user -d 'Only processes of this user' -r
complete -c fragmend -n "__fish_fragmend_using_subcommand record" -l cgroup -d 'Only processes in this cgroup v2 directory and below' -r -F
complete -c fragmend -n "__fish_fragmend_using_subcommand record" -l max-ranges -d 'Ranges that --fold distinguishes; some 100 bytes of kernel memory each' -r
complete -c fragmend -n "__fish_fragmend_using_subcommand record" -l buffer -d 'Size of the buffer between kernel and recorder, for example 64M' -r
complete -c fragmend -n "__fish_fragmend_using_subcommand record" -l overhead -d 'What the recording may cost, in per cent of the machine\'s processor time: where everything would cost more, requests are watched in turns with pauses, and then in a part of all places; 100 records everything' -r
complete -c fragmend -n "__fish_fragmend_using_subcommand record" -l fold -d 'Count equal accesses in the kernel instead of storing each: bounded memory for long recordings'
complete -c fragmend -n "__fish_fragmend_using_subcommand record" -l force -d 'Replace the output even if it is not a trace'
complete -c fragmend -n "__fish_fragmend_using_subcommand record" -l json -d 'Print one JSON document (JSON Lines for long-running verbs) instead of text'
complete -c fragmend -n "__fish_fragmend_using_subcommand record" -s q -l quiet -d 'No progress and no hints; results and errors only'
complete -c fragmend -n "__fish_fragmend_using_subcommand record" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c fragmend -n "__fish_fragmend_using_subcommand plan" -s t -l trace -d 'The trace of `fragmend record`; needed by the policies `fragpicker`, `gain` and `iodp`' -r -F
complete -c fragmend -n "__fish_fragmend_using_subcommand plan" -l slow -d 'What `fragmend probe --json FILE` has printed of a file: its ranges that are in one extent and yet slow are considered, too, and written anew where that is worth it. May be given more than once. Without a trace, one read of these files is planned for' -r -F
complete -c fragmend -n "__fish_fragmend_using_subcommand plan" -s o -l output -d 'The plan file to write (JSON); without it, only the summary is printed' -r -F
complete -c fragmend -n "__fish_fragmend_using_subcommand plan" -l policy -d 'How ranges are chosen' -r -f -a "gain\t'The most time saved for the bytes written'
fragpicker\t'Accessed, hot, fragmented windows, as FragPicker chooses them'
bypass\t'Every fragmented readahead window; needs no trace'
whole-file\t'Every fragmented file, whole; needs no trace'
iodp\t'Accessed ranges by how fragmented and how often read they are, as InDeF chooses them'
segments\t'Fragmented segments of an F2FS, emptied file by file, so that files become contiguous and segments free; needs no trace, and root'"
complete -c fragmend -n "__fish_fragmend_using_subcommand plan" -l budget -d 'Move at most this many bytes, for example 500M; if more is worth moving, the exit status of auto, and of plan --check, contains 16' -r
complete -c fragmend -n "__fish_fragmend_using_subcommand plan" -l hot -d 'Consider only the hottest fraction of what was accessed, for example 0.5' -r
complete -c fragmend -n "__fish_fragmend_using_subcommand plan" -l truncate -d 'Leave out so many per cent of the accessed ranges of each file, those of the lowest priority: of the policy iodp, and 30 if it is not given' -r
complete -c fragmend -n "__fish_fragmend_using_subcommand plan" -l min-gain -d 'Seconds that a move must save per GiB that it writes, in one replay of what was recorded. By default a sixteenth of the time that the device itself needs to read and write a GiB, so that a move has paid for itself after sixteen such replays: 0.04 s on an NVMe drive, 0.2 s on a SATA one, 0.9 s on a disk, 1.4 s on a memory card' -r
complete -c fragmend -n "__fish_fragmend_using_subcommand plan" -l rated-writes -d 'What the drive is rated to be written in its life, for example 600T: shows which share of it the plan writes. Drives that keep an account of their wear (NVMe, many SATA drives) are asked for it in any case, where this is run as root' -r
complete -c fragmend -n "__fish_fragmend_using_subcommand plan" -l picture -d 'Draw what each amount of writing would save to this file (SVG)' -r -F
complete -c fragmend -n "__fish_fragmend_using_subcommand plan" -l top -d 'How many files to show' -r
complete -c fragmend -n "__fish_fragmend_using_subcommand plan" -l measure -d 'Time a sample of the recorded reads where the data is now, past the page cache, and plan with what fragments cost there: at most 64 MiB, three times'
complete -c fragmend -n "__fish_fragmend_using_subcommand plan" -l assume-cold -d 'Plan for a cold start (boot, batch job, fail-over): as if nothing were in the page cache at first, whatever reached the device while it was recorded'
complete -c fragmend -n "__fish_fragmend_using_subcommand plan" -l unshare -d 'Also move what is shared with snapshots or other files, which needs space for a copy'
complete -c fragmend -n "__fish_fragmend_using_subcommand plan" -l check -d 'Put the result into the exit status: it contains 2 if something could be improved'
complete -c fragmend -n "__fish_fragmend_using_subcommand plan" -l json -d 'Print one JSON document (JSON Lines for long-running verbs) instead of text'
complete -c fragmend -n "__fish_fragmend_using_subcommand plan" -s q -l quiet -d 'No progress and no hints; results and errors only'
complete -c fragmend -n "__fish_fragmend_using_subcommand plan" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c fragmend -n "__fish_fragmend_using_subcommand apply" -l rate -d 'Bytes per second, for example 20M; `max`; or `auto`, which yields while others read' -r
complete -c fragmend -n "__fish_fragmend_using_subcommand apply" -l free-floor -d 'Leave at least this many bytes free [default: a twentieth of the file system]' -r
complete -c fragmend -n "__fish_fragmend_using_subcommand apply" -l engine -d 'What moves the data' -r -f -a "native\t'The file system\'s own primitive, safe beside programs that use the files'
rewrite\t'Copy, punch, allocate, write again: for file systems without such a primitive, and for files that no program has open; keeps a durable copy until all is done, from which `fragmend recover` continues after a crash. Never on file systems that take snapshots (Btrfs, bcachefs, nilfs2, ZFS), not even with --force'"
complete -c fragmend -n "__fish_fragmend_using_subcommand apply" -l journal -d 'Keep the records of a rewrite in this directory, not at the top of the file system: on ext4, XFS, Btrfs or F2FS with write barriers, and where others cannot rename them. It must be given where only a directory of the file system is mounted, as in a container' -r -F
complete -c fragmend -n "__fish_fragmend_using_subcommand apply" -l force -d 'Also move where a power cut may do harm: nothing orders data before the journal (no journal, data=writeback), the journal cannot replay the move (long files on XFS without reflink), or other programs have the file open for writing (F2FS)'
complete -c fragmend -n "__fish_fragmend_using_subcommand apply" -l unshare -d 'Also move what is shared with snapshots or other files, which needs space for a copy'
complete -c fragmend -n "__fish_fragmend_using_subcommand apply" -l dry-run -d 'Check and report, move nothing'
complete -c fragmend -n "__fish_fragmend_using_subcommand apply" -l json -d 'Print one JSON document (JSON Lines for long-running verbs) instead of text'
complete -c fragmend -n "__fish_fragmend_using_subcommand apply" -s q -l quiet -d 'No progress and no hints; results and errors only'
complete -c fragmend -n "__fish_fragmend_using_subcommand apply" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c fragmend -n "__fish_fragmend_using_subcommand auto" -l duration -d 'How long to watch, for example 60s or 5m' -r
complete -c fragmend -n "__fish_fragmend_using_subcommand auto" -l policy -d 'How ranges are chosen' -r -f -a "gain\t'The most time saved for the bytes written'
fragpicker\t'Accessed, hot, fragmented windows, as FragPicker chooses them'
bypass\t'Every fragmented readahead window; needs no trace'
whole-file\t'Every fragmented file, whole; needs no trace'
iodp\t'Accessed ranges by how fragmented and how often read they are, as InDeF chooses them'
segments\t'Fragmented segments of an F2FS, emptied file by file, so that files become contiguous and segments free; needs no trace, and root'"
complete -c fragmend -n "__fish_fragmend_using_subcommand auto" -l budget -d 'Move at most this many bytes, for example 500M; if more is worth moving, the exit status of auto, and of plan --check, contains 16' -r
complete -c fragmend -n "__fish_fragmend_using_subcommand auto" -l hot -d 'Consider only the hottest fraction of what was accessed, for example 0.5' -r
complete -c fragmend -n "__fish_fragmend_using_subcommand auto" -l truncate -d 'Leave out so many per cent of the accessed ranges of each file, those of the lowest priority: of the policy iodp, and 30 if it is not given' -r
complete -c fragmend -n "__fish_fragmend_using_subcommand auto" -l min-gain -d 'Seconds that a move must save per GiB that it writes, in one replay of what was recorded. By default a sixteenth of the time that the device itself needs to read and write a GiB, so that a move has paid for itself after sixteen such replays: 0.04 s on an NVMe drive, 0.2 s on a SATA one, 0.9 s on a disk, 1.4 s on a memory card' -r
complete -c fragmend -n "__fish_fragmend_using_subcommand auto" -l rated-writes -d 'What the drive is rated to be written in its life, for example 600T: shows which share of it the plan writes. Drives that keep an account of their wear (NVMe, many SATA drives) are asked for it in any case, where this is run as root' -r
complete -c fragmend -n "__fish_fragmend_using_subcommand auto" -l rate -d 'Bytes per second, for example 20M; `max`; or `auto`, which yields while others read' -r
complete -c fragmend -n "__fish_fragmend_using_subcommand auto" -l free-floor -d 'Leave at least this many bytes free [default: a twentieth of the file system]' -r
complete -c fragmend -n "__fish_fragmend_using_subcommand auto" -l engine -d 'What moves the data' -r -f -a "native\t'The file system\'s own primitive, safe beside programs that use the files'
rewrite\t'Copy, punch, allocate, write again: for file systems without such a primitive, and for files that no program has open; keeps a durable copy until all is done, from which `fragmend recover` continues after a crash. Never on file systems that take snapshots (Btrfs, bcachefs, nilfs2, ZFS), not even with --force'"
complete -c fragmend -n "__fish_fragmend_using_subcommand auto" -l journal -d 'Keep the records of a rewrite in this directory, not at the top of the file system: on ext4, XFS, Btrfs or F2FS with write barriers, and where others cannot rename them. It must be given where only a directory of the file system is mounted, as in a container' -r -F
complete -c fragmend -n "__fish_fragmend_using_subcommand auto" -l keep -d 'Keep the trace and the plan in this directory' -r -F
complete -c fragmend -n "__fish_fragmend_using_subcommand auto" -l assume-cold -d 'Plan for a cold start (boot, batch job, fail-over): as if nothing were in the page cache at first, whatever reached the device while it was recorded'
complete -c fragmend -n "__fish_fragmend_using_subcommand auto" -l force -d 'Also move where a power cut may do harm: nothing orders data before the journal (no journal, data=writeback), the journal cannot replay the move (long files on XFS without reflink), or other programs have the file open for writing (F2FS)'
complete -c fragmend -n "__fish_fragmend_using_subcommand auto" -l unshare -d 'Also move what is shared with snapshots or other files, which needs space for a copy'
complete -c fragmend -n "__fish_fragmend_using_subcommand auto" -s y -l yes -d 'Do not ask before writing'
complete -c fragmend -n "__fish_fragmend_using_subcommand auto" -l dry-run -d 'Record and plan, move nothing'
complete -c fragmend -n "__fish_fragmend_using_subcommand auto" -l watch-again -d 'Afterwards watch the service again, for as long as it was recorded, and compare the time of its disks; without this, a sample of the recorded reads is replayed before and after'
complete -c fragmend -n "__fish_fragmend_using_subcommand auto" -l json -d 'Print one JSON document (JSON Lines for long-running verbs) instead of text'
complete -c fragmend -n "__fish_fragmend_using_subcommand auto" -s q -l quiet -d 'No progress and no hints; results and errors only'
complete -c fragmend -n "__fish_fragmend_using_subcommand auto" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c fragmend -n "__fish_fragmend_using_subcommand top" -l interval -d 'How often to draw, and over which time rates are counted' -r
complete -c fragmend -n "__fish_fragmend_using_subcommand top" -l policy -d 'How ranges are chosen' -r -f -a "gain\t'The most time saved for the bytes written'
fragpicker\t'Accessed, hot, fragmented windows, as FragPicker chooses them'
bypass\t'Every fragmented readahead window; needs no trace'
whole-file\t'Every fragmented file, whole; needs no trace'
iodp\t'Accessed ranges by how fragmented and how often read they are, as InDeF chooses them'
segments\t'Fragmented segments of an F2FS, emptied file by file, so that files become contiguous and segments free; needs no trace, and root'"
complete -c fragmend -n "__fish_fragmend_using_subcommand top" -l budget -d 'Move at most this many bytes, for example 500M; if more is worth moving, the exit status of auto, and of plan --check, contains 16' -r
complete -c fragmend -n "__fish_fragmend_using_subcommand top" -l hot -d 'Consider only the hottest fraction of what was accessed, for example 0.5' -r
complete -c fragmend -n "__fish_fragmend_using_subcommand top" -l truncate -d 'Leave out so many per cent of the accessed ranges of each file, those of the lowest priority: of the policy iodp, and 30 if it is not given' -r
complete -c fragmend -n "__fish_fragmend_using_subcommand top" -l min-gain -d 'Seconds that a move must save per GiB that it writes, in one replay of what was recorded. By default a sixteenth of the time that the device itself needs to read and write a GiB, so that a move has paid for itself after sixteen such replays: 0.04 s on an NVMe drive, 0.2 s on a SATA one, 0.9 s on a disk, 1.4 s on a memory card' -r
complete -c fragmend -n "__fish_fragmend_using_subcommand top" -l rated-writes -d 'What the drive is rated to be written in its life, for example 600T: shows which share of it the plan writes. Drives that keep an account of their wear (NVMe, many SATA drives) are asked for it in any case, where this is run as root' -r
complete -c fragmend -n "__fish_fragmend_using_subcommand top" -l rate -d 'Bytes per second, for example 20M; `max`; or `auto`, which yields while others read' -r
complete -c fragmend -n "__fish_fragmend_using_subcommand top" -l free-floor -d 'Leave at least this many bytes free [default: a twentieth of the file system]' -r
complete -c fragmend -n "__fish_fragmend_using_subcommand top" -l engine -d 'What moves the data' -r -f -a "native\t'The file system\'s own primitive, safe beside programs that use the files'
rewrite\t'Copy, punch, allocate, write again: for file systems without such a primitive, and for files that no program has open; keeps a durable copy until all is done, from which `fragmend recover` continues after a crash. Never on file systems that take snapshots (Btrfs, bcachefs, nilfs2, ZFS), not even with --force'"
complete -c fragmend -n "__fish_fragmend_using_subcommand top" -l journal -d 'Keep the records of a rewrite in this directory, not at the top of the file system: on ext4, XFS, Btrfs or F2FS with write barriers, and where others cannot rename them. It must be given where only a directory of the file system is mounted, as in a container' -r -F
complete -c fragmend -n "__fish_fragmend_using_subcommand top" -l assume-cold -d 'Plan for a cold start (boot, batch job, fail-over): as if nothing were in the page cache at first, whatever reached the device while it was recorded'
complete -c fragmend -n "__fish_fragmend_using_subcommand top" -l force -d 'Also move where a power cut may do harm: nothing orders data before the journal (no journal, data=writeback), the journal cannot replay the move (long files on XFS without reflink), or other programs have the file open for writing (F2FS)'
complete -c fragmend -n "__fish_fragmend_using_subcommand top" -l unshare -d 'Also move what is shared with snapshots or other files, which needs space for a copy'
complete -c fragmend -n "__fish_fragmend_using_subcommand top" -l json -d 'Print one JSON document (JSON Lines for long-running verbs) instead of text'
complete -c fragmend -n "__fish_fragmend_using_subcommand top" -s q -l quiet -d 'No progress and no hints; results and errors only'
complete -c fragmend -n "__fish_fragmend_using_subcommand top" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c fragmend -n "__fish_fragmend_using_subcommand probe" -l seconds -d 'How long it may last, at most; a file\'s ranges may last as long again' -r
complete -c fragmend -n "__fish_fragmend_using_subcommand probe" -l pace -d 'How it goes beside other programs' -r -f -a "auto\t'It waits while others use the device, and rests between bursts'
max\t'As fast as it goes'"
complete -c fragmend -n "__fish_fragmend_using_subcommand probe" -l clock -d 'Which clock times the reads' -r -f -a "auto\t'That of the drive, where `fragmend lab serve` serves one; else that on the wall'
wall\t'That on the wall'"
complete -c fragmend -n "__fish_fragmend_using_subcommand probe" -l profiles -d 'Where profiles are kept [default: $FRAGMEND_PROFILES, or /var/lib/fragmend/profiles]' -r -F
complete -c fragmend -n "__fish_fragmend_using_subcommand probe" -l out -d 'Draw pictures into this directory (SVG)' -r -F
complete -c fragmend -n "__fish_fragmend_using_subcommand probe" -l seed -d 'The seed of all random places' -r
complete -c fragmend -n "__fish_fragmend_using_subcommand probe" -l no-keep -d 'Do not keep the profile'
complete -c fragmend -n "__fish_fragmend_using_subcommand probe" -l no-intervals -d 'Leave out reads at intervals: costs alone, no stripe and no die granularity'
complete -c fragmend -n "__fish_fragmend_using_subcommand probe" -l again -d 'Of a file: probe its device first also if a profile of it is kept'
complete -c fragmend -n "__fish_fragmend_using_subcommand probe" -l check -d 'Put the result into the exit status: it contains 2 if something could be improved'
complete -c fragmend -n "__fish_fragmend_using_subcommand probe" -l json -d 'Print one JSON document (JSON Lines for long-running verbs) instead of text'
complete -c fragmend -n "__fish_fragmend_using_subcommand probe" -s q -l quiet -d 'No progress and no hints; results and errors only'
complete -c fragmend -n "__fish_fragmend_using_subcommand probe" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c fragmend -n "__fish_fragmend_using_subcommand report" -s o -l output -d 'The page to write (HTML, one file that loads nothing); needed unless --json is given' -r -F
complete -c fragmend -n "__fish_fragmend_using_subcommand report" -l json -d 'Print one JSON document (JSON Lines for long-running verbs) instead of text'
complete -c fragmend -n "__fish_fragmend_using_subcommand report" -s q -l quiet -d 'No progress and no hints; results and errors only'
complete -c fragmend -n "__fish_fragmend_using_subcommand report" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c fragmend -n "__fish_fragmend_using_subcommand recover" -l journal -d 'The directory that was given to `apply --journal`. If copies of the file system are mounted as well, nothing is done until PATH names the one that was rewritten. A record is kept as `NAME.record.kept`, exit code 1, if it is not certain that its own file was found; renamed back, it is checked again' -r -F
complete -c fragmend -n "__fish_fragmend_using_subcommand recover" -l prefer -d 'What to do where a file at or below the given paths was changed after its record was made' -r -f -a "file\t'The file as it is now: remove the record'
record\t'The recorded bytes: put them back over what is there'"
complete -c fragmend -n "__fish_fragmend_using_subcommand recover" -l dry-run -d 'Check and report, change nothing'
complete -c fragmend -n "__fish_fragmend_using_subcommand recover" -l json -d 'Print one JSON document (JSON Lines for long-running verbs) instead of text'
complete -c fragmend -n "__fish_fragmend_using_subcommand recover" -s q -l quiet -d 'No progress and no hints; results and errors only'
complete -c fragmend -n "__fish_fragmend_using_subcommand recover" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c fragmend -n "__fish_fragmend_using_subcommand watch" -l policy -d 'What is watched, what may move and when, and how much may be written; TOML' -r -F
complete -c fragmend -n "__fish_fragmend_using_subcommand watch" -l store -d 'Where the daemon remembers; made, with its directory, for its owner alone' -r -F
complete -c fragmend -n "__fish_fragmend_using_subcommand watch" -l once -d 'Record once, plan, move what may move now, and end: for timers'
complete -c fragmend -n "__fish_fragmend_using_subcommand watch" -l check -d 'Print what the policy means, and refuse what the daemon would, or with --once such a run'
complete -c fragmend -n "__fish_fragmend_using_subcommand watch" -l json -d 'Print one JSON document (JSON Lines for long-running verbs) instead of text'
complete -c fragmend -n "__fish_fragmend_using_subcommand watch" -s q -l quiet -d 'No progress and no hints; results and errors only'
complete -c fragmend -n "__fish_fragmend_using_subcommand watch" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c fragmend -n "__fish_fragmend_using_subcommand lab; and not __fish_seen_subcommand_from list run compare drive serve help" -l json -d 'Print one JSON document (JSON Lines for long-running verbs) instead of text'
complete -c fragmend -n "__fish_fragmend_using_subcommand lab; and not __fish_seen_subcommand_from list run compare drive serve help" -s q -l quiet -d 'No progress and no hints; results and errors only'
complete -c fragmend -n "__fish_fragmend_using_subcommand lab; and not __fish_seen_subcommand_from list run compare drive serve help" -s h -l help -d 'Print help'
complete -c fragmend -n "__fish_fragmend_using_subcommand lab; and not __fish_seen_subcommand_from list run compare drive serve help" -f -a "list" -d 'Which experiments and drives there are, and which loads and remedies are compared'
complete -c fragmend -n "__fish_fragmend_using_subcommand lab; and not __fish_seen_subcommand_from list run compare drive serve help" -f -a "run" -d 'Run experiments: the paper\'s figures, ours, and whether they are in band'
complete -c fragmend -n "__fish_fragmend_using_subcommand lab; and not __fish_seen_subcommand_from list run compare drive serve help" -f -a "compare" -d 'Compare all remedies side by side on aged images: what each gains, writes, wears out and risks'
complete -c fragmend -n "__fish_fragmend_using_subcommand lab; and not __fish_seen_subcommand_from list run compare drive serve help" -f -a "drive" -d 'Check a drive\'s description and print it, as a start for one of your own'
complete -c fragmend -n "__fish_fragmend_using_subcommand lab; and not __fish_seen_subcommand_from list run compare drive serve help" -f -a "serve" -d 'Serve a simulated drive as a block device of this machine, for real file systems'
complete -c fragmend -n "__fish_fragmend_using_subcommand lab; and not __fish_seen_subcommand_from list run compare drive serve help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c fragmend -n "__fish_fragmend_using_subcommand lab; and __fish_seen_subcommand_from list" -l json -d 'Print one JSON document (JSON Lines for long-running verbs) instead of text'
complete -c fragmend -n "__fish_fragmend_using_subcommand lab; and __fish_seen_subcommand_from list" -s q -l quiet -d 'No progress and no hints; results and errors only'
complete -c fragmend -n "__fish_fragmend_using_subcommand lab; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c fragmend -n "__fish_fragmend_using_subcommand lab; and __fish_seen_subcommand_from run" -l seed -d 'The seed of all random numbers' -r
complete -c fragmend -n "__fish_fragmend_using_subcommand lab; and __fish_seen_subcommand_from run" -l out -d 'Where the pictures go (SVG); with --json, none are drawn unless this is given' -r -F
complete -c fragmend -n "__fish_fragmend_using_subcommand lab; and __fish_seen_subcommand_from run" -s j -l jobs -d 'How many experiments run in parallel; the result is the same. One per core by default' -r
complete -c fragmend -n "__fish_fragmend_using_subcommand lab; and __fish_seen_subcommand_from run" -l drive -d 'Run loads of your own on this drive instead of the one that their file names' -r
complete -c fragmend -n "__fish_fragmend_using_subcommand lab; and __fish_seen_subcommand_from run" -l json -d 'Print one JSON document (JSON Lines for long-running verbs) instead of text'
complete -c fragmend -n "__fish_fragmend_using_subcommand lab; and __fish_seen_subcommand_from run" -s q -l quiet -d 'No progress and no hints; results and errors only'
complete -c fragmend -n "__fish_fragmend_using_subcommand lab; and __fish_seen_subcommand_from run" -s h -l help -d 'Print help'
complete -c fragmend -n "__fish_fragmend_using_subcommand lab; and __fish_seen_subcommand_from compare" -l load -d 'Only these loads; `fragmend lab list` names them' -r
complete -c fragmend -n "__fish_fragmend_using_subcommand lab; and __fish_seen_subcommand_from compare" -l drive -d 'On these drives instead of ufs-2.0, nvmevirt-fast24 and femu-indef' -r
complete -c fragmend -n "__fish_fragmend_using_subcommand lab; and __fish_seen_subcommand_from compare" -l remedy -d 'Only these remedies, beside the image without one' -r
complete -c fragmend -n "__fish_fragmend_using_subcommand lab; and __fish_seen_subcommand_from compare" -l seed -d 'The seed of all random numbers' -r
complete -c fragmend -n "__fish_fragmend_using_subcommand lab; and __fish_seen_subcommand_from compare" -l scale -d 'Loads of one part in N of their usual sizes' -r
complete -c fragmend -n "__fish_fragmend_using_subcommand lab; and __fish_seen_subcommand_from compare" -l out -d 'Where the page (compare.md) and the pictures of gain against programmed bytes (SVG) go; without it, none are written' -r -F
complete -c fragmend -n "__fish_fragmend_using_subcommand lab; and __fish_seen_subcommand_from compare" -s j -l jobs -d 'How many cells are measured in parallel; the result is the same. One per core by default' -r
complete -c fragmend -n "__fish_fragmend_using_subcommand lab; and __fish_seen_subcommand_from compare" -l json -d 'Print one JSON document (JSON Lines for long-running verbs) instead of text'
complete -c fragmend -n "__fish_fragmend_using_subcommand lab; and __fish_seen_subcommand_from compare" -s q -l quiet -d 'No progress and no hints; results and errors only'
complete -c fragmend -n "__fish_fragmend_using_subcommand lab; and __fish_seen_subcommand_from compare" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c fragmend -n "__fish_fragmend_using_subcommand lab; and __fish_seen_subcommand_from drive" -l json -d 'Print one JSON document (JSON Lines for long-running verbs) instead of text'
complete -c fragmend -n "__fish_fragmend_using_subcommand lab; and __fish_seen_subcommand_from drive" -s q -l quiet -d 'No progress and no hints; results and errors only'
complete -c fragmend -n "__fish_fragmend_using_subcommand lab; and __fish_seen_subcommand_from drive" -s h -l help -d 'Print help'
complete -c fragmend -n "__fish_fragmend_using_subcommand lab; and __fish_seen_subcommand_from serve" -l size -d 'Expose only the first bytes of the drive (K, M, G: binary); all of them by default' -r
complete -c fragmend -n "__fish_fragmend_using_subcommand lab; and __fish_seen_subcommand_from serve" -l paced -d 'Let requests really last as long as the drive needs, times a factor; without this, virtual time is added up, and nothing lasts longer than it must' -r
complete -c fragmend -n "__fish_fragmend_using_subcommand lab; and __fish_seen_subcommand_from serve" -l sector-size -d 'Bytes of a sector: a power of two; those of the drive\'s unit by default, at most 4096' -r
complete -c fragmend -n "__fish_fragmend_using_subcommand lab; and __fish_seen_subcommand_from serve" -l dir -d 'Where the data is, in a file without a name, and the directory of the control files; the system\'s temporary directory by default' -r -F
complete -c fragmend -n "__fish_fragmend_using_subcommand lab; and __fish_seen_subcommand_from serve" -l json -d 'Print one JSON document (JSON Lines for long-running verbs) instead of text'
complete -c fragmend -n "__fish_fragmend_using_subcommand lab; and __fish_seen_subcommand_from serve" -s q -l quiet -d 'No progress and no hints; results and errors only'
complete -c fragmend -n "__fish_fragmend_using_subcommand lab; and __fish_seen_subcommand_from serve" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c fragmend -n "__fish_fragmend_using_subcommand lab; and __fish_seen_subcommand_from help" -f -a "list" -d 'Which experiments and drives there are, and which loads and remedies are compared'
complete -c fragmend -n "__fish_fragmend_using_subcommand lab; and __fish_seen_subcommand_from help" -f -a "run" -d 'Run experiments: the paper\'s figures, ours, and whether they are in band'
complete -c fragmend -n "__fish_fragmend_using_subcommand lab; and __fish_seen_subcommand_from help" -f -a "compare" -d 'Compare all remedies side by side on aged images: what each gains, writes, wears out and risks'
complete -c fragmend -n "__fish_fragmend_using_subcommand lab; and __fish_seen_subcommand_from help" -f -a "drive" -d 'Check a drive\'s description and print it, as a start for one of your own'
complete -c fragmend -n "__fish_fragmend_using_subcommand lab; and __fish_seen_subcommand_from help" -f -a "serve" -d 'Serve a simulated drive as a block device of this machine, for real file systems'
complete -c fragmend -n "__fish_fragmend_using_subcommand lab; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c fragmend -n "__fish_fragmend_using_subcommand help; and not __fish_seen_subcommand_from scan record plan apply auto top probe report recover watch lab help" -f -a "scan" -d 'How fragmented files are, where, and what it costs'
complete -c fragmend -n "__fish_fragmend_using_subcommand help; and not __fish_seen_subcommand_from scan record plan apply auto top probe report recover watch lab help" -f -a "record" -d 'Trace what programs read and write, into a Parquet file'
complete -c fragmend -n "__fish_fragmend_using_subcommand help; and not __fish_seen_subcommand_from scan record plan apply auto top probe report recover watch lab help" -f -a "plan" -d 'Choose what is worth moving, and explain it'
complete -c fragmend -n "__fish_fragmend_using_subcommand help; and not __fish_seen_subcommand_from scan record plan apply auto top probe report recover watch lab help" -f -a "apply" -d 'Move the ranges of a plan, with a receipt for each'
complete -c fragmend -n "__fish_fragmend_using_subcommand help; and not __fish_seen_subcommand_from scan record plan apply auto top probe report recover watch lab help" -f -a "auto" -d 'Record, plan and apply in one go'
complete -c fragmend -n "__fish_fragmend_using_subcommand help; and not __fish_seen_subcommand_from scan record plan apply auto top probe report recover watch lab help" -f -a "top" -d 'Watch a file system while it is used: a map, the files by the time that is lost because of them, and the present plan'
complete -c fragmend -n "__fish_fragmend_using_subcommand help; and not __fish_seen_subcommand_from scan record plan apply auto top probe report recover watch lab help" -f -a "probe" -d 'Measure what reading a device costs, and how its flash is organized; reads only'
complete -c fragmend -n "__fish_fragmend_using_subcommand help; and not __fish_seen_subcommand_from scan record plan apply auto top probe report recover watch lab help" -f -a "report" -d 'One HTML page of scans, plans, receipts, profiles and results of the lab'
complete -c fragmend -n "__fish_fragmend_using_subcommand help; and not __fish_seen_subcommand_from scan record plan apply auto top probe report recover watch lab help" -f -a "recover" -d 'Put back what an interrupted `--engine rewrite` left unfinished'
complete -c fragmend -n "__fish_fragmend_using_subcommand help; and not __fish_seen_subcommand_from scan record plan apply auto top probe report recover watch lab help" -f -a "watch" -d 'Record and plan again and again, advise, and move what a policy permits, within a daily budget'
complete -c fragmend -n "__fish_fragmend_using_subcommand help; and not __fish_seen_subcommand_from scan record plan apply auto top probe report recover watch lab help" -f -a "lab" -d 'Repeat the papers\' experiments on simulated drives, or run a load of your own on one'
complete -c fragmend -n "__fish_fragmend_using_subcommand help; and not __fish_seen_subcommand_from scan record plan apply auto top probe report recover watch lab help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c fragmend -n "__fish_fragmend_using_subcommand help; and __fish_seen_subcommand_from lab" -f -a "list" -d 'Which experiments and drives there are, and which loads and remedies are compared'
complete -c fragmend -n "__fish_fragmend_using_subcommand help; and __fish_seen_subcommand_from lab" -f -a "run" -d 'Run experiments: the paper\'s figures, ours, and whether they are in band'
complete -c fragmend -n "__fish_fragmend_using_subcommand help; and __fish_seen_subcommand_from lab" -f -a "compare" -d 'Compare all remedies side by side on aged images: what each gains, writes, wears out and risks'
complete -c fragmend -n "__fish_fragmend_using_subcommand help; and __fish_seen_subcommand_from lab" -f -a "drive" -d 'Check a drive\'s description and print it, as a start for one of your own'
complete -c fragmend -n "__fish_fragmend_using_subcommand help; and __fish_seen_subcommand_from lab" -f -a "serve" -d 'Serve a simulated drive as a block device of this machine, for real file systems'
