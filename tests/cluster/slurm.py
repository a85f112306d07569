"""A real Slurm of one node for the tests, as root, without systemd, cgroups or anything outside its own folder.

Its daemons read a slurm.conf of their own (the clients find it by SLURM_CONF), speak on free ports and have a munge key
and socket of their own: /etc/slurm stays as it is, and a Slurm that is already on the machine is not disturbed.
"""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

INSTALL = "apt-get install munge slurmctld slurmd slurm-client"
INSTALL_ACCOUNTING = f"{INSTALL} slurmdbd mariadb-server"
MEMORY = 64_000  # MB that the node is said to have; no cgroup holds a job to its share
# Installed programs of a system administrator, not always on a test's PATH.
PATH = f"{os.environ['PATH']}{os.pathsep}/usr/sbin{os.pathsep}/sbin"

CONF = """\
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
SlurmctldPort={ctld}
SlurmdPort={slurmd}
AuthType=auth/munge
AuthInfo=socket={root}/munge/socket,cred_expire=5
CredType=cred/munge
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd.pid
SlurmctldLogFile={root}/slurmctld.log
SlurmdLogFile={root}/slurmd.log
PlugStackConfig=/dev/null
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/linux
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1,batch_sched_delay=0,sched_min_interval=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=0
SlurmdParameters=config_overrides
ReturnToService=2
MinJobAge=300
KillWait={kill_wait}
OverTimeLimit=0
UnkillableStepTimeout=20
InactiveLimit=0
GresTypes=gpu
DefMemPerCPU=256
{accounting}
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory={memory}{gres} State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE PriorityTier=1 PreemptMode=REQUEUE State=UP
PartitionName=low Nodes=ALL MaxTime=INFINITE PriorityTier=1 PreemptMode=REQUEUE GraceTime=0 State=UP
PartitionName=graced Nodes=ALL MaxTime=INFINITE PriorityTier=1 PreemptMode=REQUEUE GraceTime=30 State=UP
PartitionName=high Nodes=ALL MaxTime=INFINITE PriorityTier=10 PreemptMode=OFF State=UP
"""
ACCOUNTING = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={dbd}
AccountingStoragePass={root}/munge/socket
AccountingStorageTRES=gres/gpu
AccountingStoreFlags=job_comment"""
DBD_CONF = """\
AuthType=auth/munge
AuthInfo=socket={root}/munge/socket
DbdHost=localhost
DbdPort={dbd}
SlurmUser=root
PidFile={root}/slurmdbd.pid
LogFile={root}/slurmdbd.log
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={database}
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm_acct_db
"""
DATABASE = """\
CREATE DATABASE slurm_acct_db;
CREATE USER slurm@'127.0.0.1' IDENTIFIED BY 'slurm';
GRANT ALL ON slurm_acct_db.* TO slurm@'127.0.0.1';
"""


class NoSlurm(Exception):
    """No Slurm can be had here; its text says why, and what would help."""


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nobody listens on."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for opened in sockets:
            opened.bind(("127.0.0.1", 0))
        return [opened.getsockname()[1] for opened in sockets]
    finally:
        for opened in sockets:
            opened.close()


class Slurm:
    """One node, partitions main, low and graced (both are preempted, graced with 30 s of grace) and high.

    root: an empty folder on a short path (sockets lie in it); cpus, gpus: what the node is said to have; kill_wait:
    seconds between SIGTERM and SIGKILL. Raises NoSlurm where there is none to be had.
    """

    def __init__(self, root: Path, *, accounting: bool = False, cpus: int = 16, gpus: int = 4, kill_wait: int = 20):
        self.root, self.accounting = root, accounting
        self.cpus, self.gpus, self.kill_wait = cpus, gpus, kill_wait
        self.host = socket.gethostname().partition(".")[0]
        here = os.pathsep.join([str(root / "bin"), str(Path(sys.executable).parent), PATH])
        self.env = {"SLURM_CONF": str(root / "slurm.conf"), "PATH": here}  # what Snakemake and the clients need
        self._daemons: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "Slurm":
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def run(self, *command: str) -> str:
        """Output of a Slurm client."""
        done = subprocess.run(command, env=os.environ | self.env, text=True, capture_output=True, timeout=60)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def jobs(self) -> dict[str, dict[str, str]]:
        """All jobs that slurmctld knows of, by id: every field of `scontrol show job`."""
        lines = self.run("scontrol", "--oneliner", "show", "job").splitlines()
        rows = [dict(field.split("=", 1) for field in line.split() if "=" in field) for line in lines]
        return {row["JobId"]: row for row in rows if "JobId" in row}

    def running(self) -> list[str]:
        """Ids of the jobs that run now."""
        return [name for name, row in self.jobs().items() if row["JobState"] == "RUNNING"]

    def start(self) -> None:
        """Raises NoSlurm."""
        self._can_be_had()
        for folder in ("bin", "munge", "state", "spool"):
            (self.root / folder).mkdir(parents=True)
        os.chmod(self.root, 0o755)
        self._configure()
        self._munge()
        if self.accounting:
            self._database()
        self.controller_starts("-i")
        self._daemon("slurmd", "-D")
        self._wait("slurmd", lambda: self._say("sinfo", "-h", "-p", "main", "-o", "%T").strip() == "idle")

    def controller_starts(self, *options: str) -> None:
        """Start slurmctld."""
        self._controller = self._daemon("slurmctld", "-D", *options)
        self._wait("slurmctld", lambda: "UP" in self._say("scontrol", "ping"))

    def controller_ends(self) -> None:
        """Kill slurmctld; what runs goes on."""
        self._controller.kill()
        self._controller.wait()
        self._daemons.remove(self._controller)

    def stop(self) -> None:
        """End all jobs, then the daemons, the last one first."""
        if len(self._daemons) > 1:
            self._say("scancel", "--signal=KILL", "--user=root")
            self._say("scancel", "--user=root")
        for daemon in reversed(self._daemons):
            daemon.terminate()
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        self._daemons.clear()

    def _can_be_had(self) -> None:
        programs = ["setpriv", "munged", "slurmctld", "slurmd", "srun", "sbatch"]
        programs += ["slurmdbd", "mariadbd", "mariadb-install-db", "mariadb"] if self.accounting else []
        if missing := [name for name in programs if not shutil.which(name, path=PATH)]:
            wanted = INSTALL_ACCOUNTING if self.accounting else INSTALL
            raise NoSlurm(f"no Slurm here ({', '.join(missing)} missing): {wanted}")
        if os.geteuid():
            raise NoSlurm("a Slurm of the tests runs as root")

    def _configure(self) -> None:
        ports = dict(zip(("ctld", "slurmd", "dbd", "database"), free_ports(4), strict=True))
        self._port = ports["database"]
        gres = f" Gres=gpu:{self.gpus}" if self.gpus else ""
        known = {"root": self.root, "host": self.host, "kill_wait": self.kill_wait, **ports}
        accounting = ACCOUNTING.format(**known) if self.accounting else "AccountingStorageType=accounting_storage/none"
        conf = CONF.format(cpus=self.cpus, memory=MEMORY, gres=gres, accounting=accounting, **known)
        (self.root / "slurm.conf").write_text(conf)
        (self.root / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")  # the default looks for a mounted cgroup
        # Snakemake's job step drops SLURM_CONF from the environment of its srun
        srun = self.root / "bin" / "srun"
        srun.write_text(f'#!/bin/sh\nSLURM_CONF={self.root}/slurm.conf exec {shutil.which("srun", path=PATH)} "$@"\n')
        srun.chmod(0o755)
        for number in range(self.gpus):  # a device file is what sets CUDA_VISIBLE_DEVICES
            os.mknod(self.root / f"nvidia{number}", 0o20666, os.makedev(1, 3))
        devices = f"Name=gpu File={self.root}/nvidia[0-{self.gpus - 1}]\n" if self.gpus else ""
        (self.root / "gres.conf").write_text(devices)
        (self.root / "slurmdbd.conf").write_text(DBD_CONF.format(**known))
        os.chmod(self.root / "slurmdbd.conf", 0o600)

    def _munge(self) -> None:
        folder = self.root / "munge"
        (folder / "key").write_bytes(os.urandom(1024))
        os.chmod(folder / "key", 0o400)
        files = [f"--{name}-file={folder / name}" for name in ("key", "pid", "log", "seed")]
        # forced: the folders of a test are not open to all users, and need not be
        self._daemon("munged", "--foreground", "--force", f"--socket={folder / 'socket'}", *files)
        self._wait("munged", (folder / "socket").exists)

    def _database(self) -> None:
        data, its_socket = self.root / "mysql", f"{self.root}/mysql.socket"
        data.mkdir()
        made = [
            "mariadb-install-db", "--no-defaults", "--user=root", f"--datadir={data}", "--skip-test-db",
            "--auth-root-authentication-method=socket",
        ]  # fmt: skip
        with open(self.root / "mariadb-install.log", "wb") as log:
            subprocess.run(made, env=os.environ | self.env, stdout=log, stderr=log, check=True)
        self._daemon(
            "mariadbd", "--no-defaults", "--user=root", f"--datadir={data}", f"--socket={its_socket}",
            "--bind-address=127.0.0.1", f"--port={self._port}", "--innodb-buffer-pool-size=64M",
            "--innodb-lock-wait-timeout=900", "--skip-name-resolve",
        )  # fmt: skip
        ask = ["mariadb", "--no-defaults", f"--socket={its_socket}", "-e"]
        self._wait("mariadbd", lambda: "1" in self._say(*ask, "SELECT 1"))
        self.run(*ask, DATABASE)
        self._daemon("slurmdbd", "-D")
        self._wait("slurmdbd", lambda: "Cluster" in self._say("sacctmgr", "list", "cluster"))
        for words in ("cluster tests", "account tests Cluster=tests", "user root Account=tests"):
            self.run("sacctmgr", "-i", "-Q", "add", *words.split())

    def _daemon(self, *command: str) -> subprocess.Popen[bytes]:
        with open(self.root / f"{command[0]}.out", "wb") as log:
            ends_with_us = ["setpriv", "--pdeathsig=TERM", *command]
            self._daemons.append(subprocess.Popen(ends_with_us, env=os.environ | self.env, stdout=log, stderr=log))
        return self._daemons[-1]

    def _say(self, *command: str) -> str:
        """Output of a client that may fail."""
        done = subprocess.run(command, env=os.environ | self.env, text=True, capture_output=True, timeout=60)
        return done.stdout

    def _wait(self, name: str, ready: Callable[[], bool], seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while not ready():
            if time.monotonic() > end or self._daemons[-1].poll() is not None:
                logs = [self.root / f"{name}.log", self.root / f"{name}.out"]
                said = " ".join(path.read_text(errors="replace")[-600:] for path in logs if path.exists())
                raise NoSlurm(f"{name} does not start here: {said}")
            time.sleep(0.1)
