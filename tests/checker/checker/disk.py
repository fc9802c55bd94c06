"""A small disk of its own for a home, which can be full, and slow. Needs root, `mkfs.ext4` and a loop device; a slow one also cgroups."""

import os
import shutil
import subprocess

SIZE_BYTES = 64 << 20
# Writes to a device are throttled in the group that has all processes, so the relay need not be moved.
THROTTLE = "/sys/fs/cgroup/blkio/blkio.throttle.write_iops_device"


class Disk:
    """`is_there` and `can_be_slow` say what is possible here."""

    def __init__(self, path):
        self.path, self.image = path, path + ".img"
        os.makedirs(path, mode=0o700, exist_ok=True)
        self.is_there = self.mount_image()
        self.can_be_slow = self.is_there and os.access(THROTTLE, os.W_OK)
        if not self.is_there:
            options = f"size={SIZE_BYTES},mode=700"
            self.is_there = run("mount", "-t", "tmpfs", "-o", options, "tmpfs", path)

    def mount_image(self):
        if os.geteuid() != 0 or not shutil.which("mkfs.ext4"):
            return False
        with open(self.image, "wb") as file:
            file.truncate(SIZE_BYTES)
        made = run("mkfs.ext4", "-q", "-b", "4096", "-m", "0", "-O", "^has_journal", self.image) and run("mount", "-o", "loop", self.image, self.path)
        if made:
            os.chmod(self.path, 0o700)
        return made

    def slow_down(self, writes_per_s):
        """Limits the writes that the device takes; 0 for no limit. False if that is not possible."""
        device = os.stat(self.path).st_dev
        try:
            with open(THROTTLE, "w", encoding="ascii") as file:
                file.write(f"{os.major(device)}:{os.minor(device)} {writes_per_s}\n")
            return True
        except OSError:
            return False

    def unmount(self):
        if self.is_there and self.can_be_slow:
            self.slow_down(0)
        is_gone = not self.is_there or run("umount", self.path)
        if is_gone and os.path.exists(self.image):
            os.unlink(self.image)
        return is_gone


def run(*arguments):
    return subprocess.run(arguments, capture_output=True).returncode == 0
