"""The file systems that peers.py compares: how each one starts, where it is mounted, how it ends."""

import pathlib
import shutil
import subprocess
import sys

from island import ADDRESS
from report import Failure

WORK = pathlib.Path(__file__).resolve().parent / "peer_work.py"
PARTS = 4  # benefactors, bricks, chunk servers


class Peer:
    """A Peer is one file system on an island.

    `folder` is scratch in memory (a tmpfs), `disk` is scratch on this machine's disk. Errors: Failure."""

    name = ""
    programs = ()  # that must be in the PATH
    about = ""  # for the page: how it is set up
    python = sys.executable  # that runs peer_work.py
    lacks = ()  # of "content", "rename", "names"
    slower = {}  # why ours is slower, by what is measured; "" for all rates

    def __init__(self, island, bin_dir, folder, disk, lent_mib):
        self.island, self.bin, self.folder, self.disk, self.lent_mib = island, bin_dir, folder, disk, lent_mib
        self.mount = folder / "mnt"
        self.mount.mkdir()
        self.log = folder / "log"

    @classmethod
    def missing(cls):
        """Returns the reason why this machine cannot run the system, or ''."""
        absent = [each for each in cls.programs if shutil.which(each) is None]
        return f"not installed: {', '.join(absent)}" if absent else ""

    def start(self):
        """Starts the system, and waits until a file can be made. Returns the place for peer_work.py."""
        raise NotImplementedError

    def stop(self):
        """Ends the system by its own commands."""

    def wait_for_mount(self):
        self.island.wait_until(lambda: self.island.is_mounted(self.mount), f"{self.name}: the mount")

    def unmount(self):
        self.island.run("umount", self.mount)

    def answers(self, port):
        """True when a program listens on this port of the island."""
        return self.island.works("bash", "-c", f"exec 3<>/dev/tcp/{ADDRESS}/{port}")

    def said(self):
        """Returns the last 500 characters of the daemons' log."""
        return self.log.read_text(errors="replace")[-500:] if self.log.exists() else ""


class Tmpfs(Peer):
    name = "tmpfs"
    about = "a tmpfs of its own"
    slower = {"": "it is in the kernel: no daemon, no checksum, no commit",
              **dict.fromkeys(("start-up", "shut-down"), "it has no processes")}

    def start(self):
        self.island.run("mount", "-t", "tmpfs", "tmpfs", self.mount)
        return self.mount

    def stop(self):
        self.unmount()


class Disk(Peer):
    name = "local disk"
    about = "a folder on this machine's disk, without fsync"
    slower = {"": "its bytes and names stay in the kernel's cache; nothing waits for the disk"}

    def start(self):
        return self.disk


class Null(Peer):
    name = "do-nothing FUSE"
    about = "bench/fuse_null.cpp, direct; a file of it has no content and no second name, so nothing is read back or renamed"
    lacks = ("content", "rename")
    slower = {"": "it keeps no bytes and no durable names",
              **dict.fromkeys(("start-up", "shut-down"), "it is one process, which lends no memory")}

    def start(self):
        self.daemon = self.island.spawn(self.bin / "fuse-null", "--mode", "direct", self.mount, log=self.log)
        self.wait_for_mount()
        return self.mount

    def stop(self):
        self.unmount()
        self.daemon.wait(timeout=20)


class Stdchk(Peer):
    name = "stdchk"
    about = f"{PARTS} benefactors, naming auto, the manager's journal in memory as the others' names"

    def start(self):
        self.island.run(self.bin / "stdchk", "up", "--benefactors", PARTS, "--mount", self.mount, "--state", self.folder / "state",
                        "--memory", f"{self.lent_mib}M")
        return self.mount

    def stop(self):
        self.island.run(self.bin / "stdchk", "down", self.mount)


class Gluster(Peer):
    name = "GlusterFS"
    programs = ("glusterd", "gluster", "glusterfs")
    about = f"{PARTS} distributed bricks in memory, native FUSE client"

    def start(self):
        self.island.cover("/var/lib/glusterd", "/var/log/glusterfs", "/run/gluster")
        self.island.run("mkdir", "-p", "/var/run/gluster", "/var/lib/glusterd/groups")
        self.daemon = self.island.spawn("glusterd", "--no-daemon", "--log-file", self.log, log=self.log)
        gluster = ("gluster", "--mode=script", "volume")
        self.island.wait_until(lambda: self.island.works(*gluster, "list"), "glusterd")
        bricks = [f"{ADDRESS}:{self.folder / f'brick{number}'}" for number in range(PARTS)]
        self.island.run(*gluster, "create", "peers", "transport", "tcp", *bricks, "force")
        self.island.run(*gluster, "start", "peers")
        self.island.run("glusterfs", f"--volfile-server={ADDRESS}", "--volfile-id=peers", "--log-file", self.log, self.mount)
        self.wait_for_mount()
        return self.mount

    def stop(self):
        self.unmount()
        self.island.run("gluster", "--mode=script", "volume", "stop", "peers")
        self.island.stop(self.daemon)


class Moose(Peer):
    name = "MooseFS"
    programs = ("mfsmaster", "mfschunkserver", "mfsmount")
    about = f"a master and {PARTS} chunk servers in memory, one copy"
    empty = pathlib.Path("/var/lib/mfs/metadata.mfs.empty")

    @classmethod
    def missing(cls):
        return super().missing() or ("" if cls.empty.exists() else f"not there: {cls.empty}")

    def configure(self, name, **more):
        data = self.folder / name
        data.mkdir()
        lines = {"WORKING_USER": "root", "WORKING_GROUP": "root", "DATA_PATH": data, "SYSLOG_IDENT": name, "LOCK_MEMORY": 0, **more}
        path = self.folder / f"{name}.cfg"
        path.write_text("".join(f"{key} = {value}\n" for key, value in lines.items()))
        return path

    def start(self):
        exports = self.folder / "exports.cfg"
        exports.write_text("* / rw,alldirs,admin,maproot=0:0\n")
        self.master = self.configure("master", EXPORTS_FILENAME=exports, MATOCL_LISTEN_HOST=ADDRESS, MATOCS_LISTEN_HOST=ADDRESS)
        shutil.copy(self.empty, self.folder / "master" / "metadata.mfs")
        self.island.run("mfsmaster", "-c", self.master, "start")
        self.servers = []
        for number in range(PARTS):
            disks, part = self.folder / f"disks{number}", self.folder / f"part{number}"
            part.mkdir()
            disks.write_text(f"{part} 64GiB\n")
            self.servers.append(self.configure(f"server{number}", HDD_CONF_FILENAME=disks, MASTER_HOST=ADDRESS,
                                               CSSERV_LISTEN_PORT=9450 + number, HDD_LEAVE_SPACE_DEFAULT="1MiB"))
            self.island.run("mfschunkserver", "-c", self.servers[-1], "start")
        self.island.run("mfsmount", self.mount, "-H", ADDRESS)
        self.island.run("mfssetgoal", "1", self.mount)
        # The first write waits until chunk servers have registered; a start is over when one is possible.
        probe = self.mount / "probe"
        self.island.wait_until(lambda: self.island.works("sh", "-c", f"echo probe >{probe}"), "MooseFS: a first write")
        self.island.run("rm", "-f", probe)
        return self.mount

    def stop(self):
        self.unmount()
        for config in self.servers:
            self.island.run("mfschunkserver", "-c", config, "stop")
        self.island.run("mfsmaster", "-c", self.master, "stop")


class Ganesha(Peer):
    name = "NFS-Ganesha"
    programs = ("ganesha.nfsd", "rpcbind")
    about = "a tmpfs exported by NFS 3. libnfs reads and writes it in user space, without FUSE or a client's cache; libnfs 4.0 cannot write by NFS 4"
    slower = {"": "its client runs inside the program, without FUSE"}

    @classmethod
    def missing(cls):
        try:
            import ctypes  # noqa: PLC0415
            ctypes.CDLL("libnfs.so.13")
        except OSError as why:
            return str(why)
        return super().missing()

    def start(self):
        # rpcbind makes its socket and its lock directly in /run; those of the host must not be touched.
        self.island.cover("/var/lib/nfs", "/run")
        self.island.run("mkdir", "-p", "/var/lib/nfs/ganesha", "/run/ganesha", "/run/rpcbind")
        self.ports = self.island.spawn("rpcbind", "-f", "-h", ADDRESS, log=self.log)
        self.island.wait_until(lambda: self.answers(111), "rpcbind's port")
        export = self.folder / "export"
        export.mkdir()
        self.island.run("mount", "-t", "tmpfs", "tmpfs", export)
        config = self.folder / "ganesha.conf"
        config.write_text(f"""
            NFS_CORE_PARAM {{ Protocols = 3, 4; Bind_addr = {ADDRESS}; Enable_NLM = false; Enable_RQUOTA = false; }}
            NFSv4 {{ Graceless = true; RecoveryBackend = fs; }}
            EXPORT {{ Export_Id = 1; Path = {export}; Pseudo = /peers; Access_Type = RW; Squash = No_Root_Squash;
                     SecType = none, sys; PrefRead = 1048576; PrefWrite = 1048576; Filesystem_id = 7.7; FSAL {{ Name = VFS; }} }}""")
        self.daemon = self.island.spawn("ganesha.nfsd", "-F", "-f", config, "-L", self.log, "-p", self.folder / "pid", log=self.log)
        self.island.wait_until(lambda: self.daemon.poll() is not None or self.answers(2049), "NFS-Ganesha's port")
        if self.daemon.poll() is not None:
            raise Failure(f"ganesha.nfsd: exit {self.daemon.returncode}: {self.said()}")
        return f"nfs://{ADDRESS}{export}"

    def stop(self):
        self.island.stop(self.daemon, 40)
        self.island.stop(self.ports)


class Juice(Peer):
    name = "JuiceFS"
    programs = ("juicefs",)
    about = "names in SQLite and objects in files, both in memory, no cache on disk"

    def start(self):
        names = f"sqlite3://{self.folder / 'names.db'}"
        self.island.run("juicefs", "format", "--storage", "file", "--bucket", f"{self.folder}/objects/", "--trash-days", 0, names, "peers")
        self.daemon = self.island.spawn("juicefs", "mount", "--no-usage-report", "--cache-dir", "memory", "--cache-size", 64,
                                        "--no-bgjob", names, self.mount, log=self.log)
        self.wait_for_mount()
        return self.mount

    def stop(self):
        self.island.run("juicefs", "umount", self.mount)
        self.daemon.wait(timeout=40)


class Mooncake(Peer):
    name = "Mooncake"
    programs = ("mooncake_master",)
    about = "a store of objects, no file system: each call of write is an object, through its Python client over TCP"
    lacks = ("names", "rename")
    slower = {"": "its client runs inside the program, without FUSE"}

    @staticmethod
    def interpreter():
        """Returns the Python of the virtual environment that has Mooncake's wheel."""
        return pathlib.Path(shutil.which("mooncake_master")).with_name("python3")

    @classmethod
    def missing(cls):
        lacks = super().missing()
        if lacks:
            return lacks
        done = subprocess.run([cls.interpreter(), "-c", "import mooncake.store"], capture_output=True, text=True, timeout=60, check=False)
        return done.stderr.strip().splitlines()[-1] if done.returncode != 0 else ""

    def start(self):
        self.python = self.interpreter()
        self.master = self.island.spawn("mooncake_master", "--enable_http_metadata_server=true", "--rpc_port=50051",
                                        f"--http_metadata_server_host={ADDRESS}", "--http_metadata_server_port=8080", log=self.log)
        self.island.wait_until(lambda: all(self.answers(port) for port in (50051, 8080)), "mooncake_master's ports")
        lender_log = self.folder / "lender"
        self.lender = self.island.spawn(self.python, WORK, f"mooncake://{ADDRESS}", "--size=0", "--files=0",
                                        f"--lend={2 * self.lent_mib << 20}", log=lender_log)
        self.island.wait_until(lambda: "lends" in lender_log.read_text(errors="replace") or self.lender.poll() is not None, "the lender")
        if self.lender.poll() is not None:
            raise Failure(lender_log.read_text(errors="replace")[-500:])
        return f"mooncake://{ADDRESS}"

    def stop(self):
        for process in (self.lender, self.master):
            self.island.stop(process)


OURS = Stdchk
ALWAYS = (Tmpfs, Disk, Null)  # need no packages
ALL = (OURS, *ALWAYS, Gluster, Moose, Ganesha, Juice, Mooncake)
