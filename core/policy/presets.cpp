#include "core/policy/presets.h"

#include <algorithm>

namespace stdchk {
namespace {

// A directory has images=1 if the program always writes another file before its marker.
// The page docs/guide/recipes.md says which file each program writes last.
constexpr Preset kPresets[] = {
    {"lammps", "set=names series={A}.{T}.{N|base}", "",
     "LAMMPS: restart 1000 NAME.*.% (one file for each rank and a base file)"},
    {"lammps-n", "set=names series={A}.N{N|base}.T{T}", "", "LAMMPS: restart 1000 NAME.N%.T*"},
    {"names", "set=names series={A}.N{N}.T{T}", "",
     "A.Ni.Tj: the names that stdchk knows without a rule"},
    {"gromacs", "set=names series={A}_step{T}.cpt", "images=1", "GROMACS: mdrun -cpnum"},
    {"criu", "set=directory marker=inventory.img", "images=1",
     "CRIU: one directory of images for each dump"},
    {"dmtcp", "set=directory marker=dmtcp_restart_script*.sh", "images=1",
     "DMTCP: one --ckptdir for each checkpoint"},
    // In one --ckptdir, DMTCP overwrites the images of each checkpoint, unless each checkpoint has a
    // directory of its own there. The coordinator then writes the restart script beside it.
    {"dmtcp-unique",
     "set=directory set-names=ckpt_*_[0-9][0-9][0-9][0-9][0-9] pointer=dmtcp_restart_script_*.sh",
     "", "DMTCP: one --ckptdir and --enable-unique-checkpoint-filenames", "ckpt_*.dmtcp"},
    {"dcp",
     "set=directory set-names=step-*|step_*|checkpoint-*|checkpoint_* marker=.metadata "
     "pointer=latest|LATEST|latest.txt",
     "images=1", "PyTorch distributed checkpoints: a directory with .metadata for each step"},
    {"megatron",
     "set=directory set-names=iter_* marker=.metadata pointer=latest_checkpointed_iteration.txt",
     "images=1", "Megatron-LM: iter_NNNNNNN, distributed format"},
    {"deepspeed", "set=directory set-names=global_step* pointer=latest|latest_universal", "",
     "DeepSpeed: global_stepN, and the file latest"},
    // AMReX writes its file Header before the levels, so no file shows that a directory is whole.
    {"amrex", "set=directory set-names=chk*|plt*", "",
     "AMReX: chkNNNNN and pltNNNNN, each whole after stdchk set commit", "", "Header"},
    {"adios", "set=directory set-names=*.bp marker=profiling.json", "images=1",
     "ADIOS2: BP4 and BP5"},
    {"hdf5", "set=names series={A}.{T}.h5", "images=1", "HDF5: one file for each timestep"},
    {"netcdf", "set=names series={A}.{T}.nc", "images=1", "NetCDF: one file for each timestep"},
    {"lammps-single", "set=names series={A}.{T}", "images=1",
     "LAMMPS: restart 1000 NAME.* (one file)"},
};

}  // namespace

std::span<const Preset> presets() { return kPresets; }

const Preset* find_preset(std::string_view name) {
  const auto found = std::ranges::find(kPresets, name, &Preset::name);
  return found == std::end(kPresets) ? nullptr : &*found;
}

std::string preset_names() {
  std::string text;
  for (const Preset& preset : kPresets) {
    if (!text.empty()) text += ", ";
    text += preset.name;
  }
  return text;
}

}  // namespace stdchk
