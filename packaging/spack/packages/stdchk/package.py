# Recipe for Spack: `spack repo add packaging/spack`, then `spack install stdchk`.
from spack.package import *


class Stdchk(MesonPackage):
    """Checkpoint storage in the memory that the nodes of a parallel job lend."""

    homepage = "https://github.com/stdchk/stdchk"
    git = "https://github.com/stdchk/stdchk.git"

    license("Apache-2.0")

    version("main", branch="main")

    variant("rdma", default=True, description="transports of libibverbs and libfabric")
    variant("slurm", default=False, description="the SPANK plug-in")
    variant("python", default=False, description="Python modules")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("meson@1.0:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")

    depends_on("capnproto")
    depends_on("cli11", type="build")
    depends_on("fmt")
    depends_on("isa-l")
    depends_on("libfuse@3:")
    depends_on("libmicrohttpd")
    depends_on("libseccomp")
    depends_on("nlohmann-json", type="build")
    depends_on("openssl@3:")
    depends_on("sqlite")
    depends_on("tl-expected", type="build")
    depends_on("tomlplusplus", type="build")

    depends_on("curl@7.75:")
    depends_on("libfabric", when="+rdma")
    depends_on("rdma-core", when="+rdma")
    depends_on("slurm", when="+slurm")
    extends("python@3.9:", when="+python")

    conflicts("%gcc@:11", msg="stdchk needs C++20 of GCC 12 or later")
    requires("platform=linux", msg="stdchk runs on Linux only")

    def meson_args(self):
        def state(name):
            return "enabled" if self.spec.satisfies(f"+{name}") else "disabled"

        return ["-Dtests=disabled", f"-Dfabric={state('rdma')}", f"-Dpython={state('python')}"]

    def setup_run_environment(self, env):
        env.set("STDCHK_ROOT", self.prefix)
