#!/bin/sh
# The guest's first process. The program's output goes to files on the host, apart from the
# console's. Its command line is in $here/command.
here=${0%/*}
exec </dev/null >"$here/init.log" 2>&1
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
# Limits on memory.
mount -t cgroup2 cgroup2 /sys/fs/cgroup && echo +memory >/sys/fs/cgroup/cgroup.subtree_control
modules=/usr/lib/uml/modules/$(uname -r)/kernel
for module in drivers/block/loop fs/fuse/fuse crypto/crc32_generic fs/f2fs/f2fs; do
    insmod "$modules/$module.ko"
done
/bin/sh "$here/command" >"$here/stdout" 2>"$here/stderr"
echo $? >"$here/code.new"
mv "$here/code.new" "$here/code"
sync
# Power off at once: nothing else runs here, and there is no init system.
echo o >/proc/sysrq-trigger
sleep 60
