# shellcheck shell=bash
# The Debian packages that stdchk needs, in one place. Sourced by the scripts beside it; running it
# with bash prints them all.

build_packages=(
  g++ meson ninja-build pkg-config capnproto
  libcapnp-dev libcli11-dev libcurl4-openssl-dev libexpected-dev libfabric-dev libfmt-dev libfuse3-dev libisal-dev libmicrohttpd-dev
  libipsec-mb-dev libseccomp-dev libsqlite3-dev libssl-dev libtomlplusplus-dev nlohmann-json3-dev catch2
  libibverbs-dev librdmacm-dev
)
run_packages=(fuse3)
demo_packages=(libopenmpi-dev openmpi-bin)
# MPICH is installed beside Open MPI. The project is built with Open MPI, and Debian's alternatives prefer it.
mpich_packages=(gfortran libmpich-dev mpich)
test_packages=(attr bindfs curl e2fsprogs fio gdb git iproute2 openssh-client openssh-server procps python3 python3-pytest python3-yaml restic rsync sqlite3 xfsprogs)
# scripts/posix uses these. Two of its suites also need cargo, from any source.
# shellcheck disable=SC2034 # scripts/posix reads it
posix_packages=(dbench e2fsprogs fio fsmark libacl1-dev stress-ng util-linux)
# The programs of docs/guide/recipes.md. scripts/check recipes installs them.
# shellcheck disable=SC2034 # scripts/check reads it
recipes_packages=(gromacs lammps openmpi-bin python3-h5py-mpi python3-mpi4py restic)
slurm_packages=(iproute2 libslurm-dev munge openmpi-bin slurm-wlm)  # for scripts/slurm-cluster and its tests
rdma_vm_packages=(busybox-static cpio ibverbs-providers iproute2 kmod perftest qemu-system-x86 xz-utils)
fork_vm_packages=(busybox-static cpio kmod qemu-system-x86 qemu-utils xz-utils)
# shellcheck disable=SC2034 # scripts/check reads it
fork_packages=(iproute2 ncbi-blast+ nftables python3-numpy quantlib-python)  # programs that the tests of clones run
rdma_siw_packages=(gcc make)
# scripts/trixie-root installs these in its Debian 13 system, not on this machine.
# shellcheck disable=SC2034 # scripts/trixie-root reads it
trixie_packages=(
  gcc iproute2 iptables iputils-ping libc6-dev libmpich-dev libopenmpi-dev mpich nftables openmpi-bin procps python3-mpi4py
  python3-numpy util-linux
)
# CRIU of Debian's unstable branch: 4.1 of Debian 13 cannot save TCP sockets on Linux 6.16 and later, 4.2 can.
# shellcheck disable=SC2034 # scripts/trixie-root reads it
unstable_packages=(criu)
# scripts/packaging and tests/scripts/packaging_test.py use these.
packaging_packages=(buildah debhelper debootstrap dh-python dpkg-dev environment-modules lintian rpm rpmlint)
container_packages=(debootstrap iproute2 nftables tar)
# `bench/run --only peers` uses these. scripts/check does not install them.
# shellcheck disable=SC2034 # its user names them
peers_packages=(
  glusterfs-client glusterfs-server libnfs13 moosefs-chunkserver moosefs-client moosefs-master nfs-ganesha nfs-ganesha-vfs
  rpcbind
)
sanitizer_packages=(clang libclang-rt-dev)
coverage_packages=(gcovr)
analysis_packages=(cppcheck)
lint_packages=(clang clang-format clang-tidy git python3 python3-venv shellcheck universal-ctags)

# keep_ssh_service_off [SUDO...]: tests run a server of their own, so the service of the package is
# neither started nor enabled. Prints a file that is to be removed after the installation.
keep_ssh_service_off() {
  local unit=/etc/systemd/system/ssh.service policy=/usr/sbin/policy-rc.d
  if [[ -d ${unit%/*} && ! -e $unit && ! -L $unit ]]; then
    "$@" ln -s /dev/null "$unit"
    echo "openssh-server: its service stays off; to have it: systemctl unmask ssh" >&2
  fi
  if [[ ! -e $policy ]]; then
    printf '#!/bin/sh\nexit 101\n' | "$@" install -m 755 /dev/stdin "$policy"
    echo "$policy"
  fi
}

# use_ccache FOLDER: compiles equal sources below FOLDER once, wherever FOLDER lies. GCC names no headers that come from a
# precompiled header. With CCACHE_DEPEND, ccache would know only the named ones, and take an object from before a change.
# Without it, ccache finds the precompiled header. It then compares preprocessed texts, and CCACHE_COMMENTS keeps the
# comments in them: GCC includes a header again that has changed at all. The namespace leaves objects behind that were
# compiled with CCACHE_DEPEND.
use_ccache() {
  export CCACHE_COMMENTS=1 CCACHE_NAMESPACE=comments CCACHE_NOHASHDIR=1 CCACHE_BASEDIR=$1
  export CCACHE_SLOPPINESS=pch_defines,time_macros
}

# need_packages NAME...: installs those that are absent, after saying so.
need_packages() {
  local absent=() name
  for name in "$@"; do
    dpkg-query -W -f '${Status}\n' "$name" 2>/dev/null | grep -q '^install ok installed$' ||
      absent+=("$name")
  done
  ((${#absent[@]} == 0)) && return 0
  if ! command -v apt-get >/dev/null; then
    echo "These Debian packages are absent; install what your system calls them: ${absent[*]}" >&2
    return 1
  fi
  local as_root=()
  if ((EUID != 0)); then
    if ! command -v sudo >/dev/null || ! sudo -n true 2>/dev/null; then
      echo "Packages are absent and this is not root. Type this, then try again:" >&2
      echo "  sudo apt-get install -y --no-install-recommends ${absent[*]}" >&2
      return 1
    fi
    as_root=(sudo -n)
  fi
  echo "Installing with apt-get: ${absent[*]}"
  local log made=
  log=$(mktemp)
  [[ " ${absent[*]} " != *" openssh-server "* ]] || made=$(keep_ssh_service_off "${as_root[@]}")
  local status=0
  "${as_root[@]}" apt-get update >"$log" 2>&1 &&
    DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y --no-install-recommends \
      "${absent[@]}" >>"$log" 2>&1 || status=1
  [[ -z $made ]] || "${as_root[@]}" rm -f "$made"
  if ((status == 0)); then
    rm -f "$log"
    return 0
  fi
  tail -n 20 "$log" >&2
  echo "apt-get failed; the whole log is $log" >&2
  return 1
}

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then
  printf '%s\n' "${build_packages[@]}" "${run_packages[@]}" "${demo_packages[@]}" \
    "${mpich_packages[@]}" "${test_packages[@]}" "${slurm_packages[@]}" "${rdma_vm_packages[@]}" "${fork_vm_packages[@]}" "${rdma_siw_packages[@]}" "${container_packages[@]}" "${packaging_packages[@]}" "${sanitizer_packages[@]}" "${coverage_packages[@]}" "${analysis_packages[@]}" "${lint_packages[@]}" | sort -u
fi
