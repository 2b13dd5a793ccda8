#pragma once

#include <span>
#include <string>
#include <string_view>

namespace stdchk {

/// A Preset is the policy, with rules of sets, for the files of a program that many people use.
struct Preset {
  std::string_view name;      ///< such as "deepspeed"
  std::string_view settings;  ///< rules, as parse_folder_settings() reads them
  std::string_view policy;    ///< as parse_policy() reads it
  std::string_view files;     ///< for people: which files of which program
  /// NamePatterns of files that show the program although the folder has no such set; empty: none.
  std::string_view sign = {};
  /// NamePatterns of a file in each directory of the program, if no marker and no pointer shows that
  /// a directory is a set; empty: none.
  std::string_view part = {};
};

/// The key of a policy's text that stands for the settings of a preset.
inline constexpr std::string_view kPresetKey = "preset";

std::span<const Preset> presets();
const Preset* find_preset(std::string_view name);
/// Returns "lammps, gromacs, ...".
std::string preset_names();

}  // namespace stdchk
