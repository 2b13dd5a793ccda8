#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/log.h"

namespace stdchk {

/// Returns the version of this build, such as "0.1.0".
std::string_view version();

/// Tells a program what to do after parse().
struct OptionsOutcome {
  bool run = true;      ///< false: end with `exit_status`
  int exit_status = 0;  ///< 0 after --help and --version, 2 after a bad option
  std::string message;  ///< for standard output when the status is 0, otherwise for standard error
};

/// The sources of option values apart from the command line.
struct OptionsSources {
  /// Returns the value of an environment variable, or nothing.
  std::function<std::optional<std::string>(const std::string&)> environment;
  /// Read in this order without --config; a later file overrides an earlier one. Missing files are
  /// skipped.
  std::vector<std::string> config_files;
  /// Returns the process's own environment, /etc/stdchk.toml and ~/.config/stdchk.toml.
  static OptionsSources system();
};

/// An Options describes and reads the options of a program. An option is "--chunk-size" on the
/// command line, the environment variable STDCHK_CHUNK_SIZE, or the key chunk-size in a TOML file.
/// The first source with a value wins, in this order. Without any, the variable keeps its value,
/// which is the default.
///
/// In a file, keys stand in the table named after the program without "stdchk-", or after the
/// subcommand ([manager], [mount], [up]). Keys before the first table apply to every program that
/// has such an option. An unknown key in the program's own table is an error.
///
/// Owns: the descriptions, not the variables, which must live until parse() has returned.
/// Threads: one.
/// Errors: parse() returns one sentence that names the option, its value, and the allowed values.
class Options {
 public:
  /// `program` is a name such as "stdchk-manager"; `summary` is one sentence for --help.
  Options(std::string program, std::string summary);
  ~Options();
  Options(const Options&) = delete;
  Options& operator=(const Options&) = delete;

  /// A Description restricts an option just described: `options.text(...).required()`.
  class Description {
   public:
    Description& required();
    /// Neither the environment nor a file can set the option.
    Description& command_line_only();

   private:
    friend class Options;
    Description(Options& options, std::size_t index) : options_(options), index_(index) {}
    Options& options_;
    std::size_t index_;
  };

  /// `flag` is the name with its dashes, such as "--state", optionally after a short form:
  /// "-l,--long". `value_name` stands for the value in --help.
  Description text(const std::string& flag, std::string& value, const std::string& value_name,
                   const std::string& help);
  /// The value must be in `allowed`. `former` has the values that only an earlier version accepted,
  /// each with the reason for the refusal.
  using Former = std::vector<std::pair<std::string, std::string>>;
  Description choice(const std::string& flag, std::string& value, std::vector<std::string> allowed,
                     const std::string& help, Former former = {});
  /// A number of bytes as core/base/units.h reads it, from `min` to `max`.
  Description size(const std::string& flag, std::uint64_t& value, std::uint64_t min,
                   std::uint64_t max, const std::string& help);
  /// Accepts a chunk size: a power of two within the limits.
  Description chunk_size(const std::string& flag, std::uint32_t& value, const std::string& help);
  /// Accepts bytes per second; 0 means no limit.
  Description rate(const std::string& flag, std::uint64_t& value, const std::string& help);
  Description count(const std::string& flag, std::uint32_t& value, std::uint32_t min,
                    std::uint32_t max, const std::string& help);
  /// Accepts a number of copies, or parity; stores the number of a Redundancy
  /// (core/policy/redundancy.h).
  Description redundancy(const std::string& flag, std::uint32_t& value, const std::string& help);
  /// Accepts "on" or "off".
  Description on_off(const std::string& flag, bool& value, const std::string& help);
  Description on_off(const std::string& flag, std::optional<bool>& value, const std::string& help);
  /// Describes --log-level, the same in every daemon.
  Description log_level(log::Level& value);
  /// Describes a flag: present or absent on the command line, "on" or "off" in the environment and
  /// in a file.
  Description flag(const std::string& flag, bool& value, const std::string& help);
  /// Describes an argument without a flag. Only from the command line.
  Description argument(const std::string& name, std::string& value, const std::string& help);
  Description arguments(const std::string& name, std::vector<std::string>& values,
                        const std::string& help);

  /// Adds the options of "program NAME ...". parse() then requires a
  /// subcommand and fills its options.
  Options& subcommand(const std::string& name, const std::string& summary);
  /// Returns the name of the subcommand that parse() found; empty if there is none.
  const std::string& chosen() const { return chosen_; }
  /// Returns that subcommand's options, or this object without a subcommand.
  const Options& chosen_options() const;
  /// Returns the file that --config or STDCHK_CONFIG named; empty if the default files were read.
  const std::string& config_file() const { return config_file_; }

  /// Reads the options. `arguments` lacks the program's own name.
  OptionsOutcome parse(const std::vector<std::string>& arguments, const OptionsSources& sources);
  /// As parse() with the system's sources, but prints the outcome's message. A returned value is
  /// the exit status to end with.
  std::optional<int> parse_or_exit(int argc, const char* const* argv);
  /// Returns the outcome for an option whose value the program itself finds wrong.
  OptionsOutcome reject(const std::string& flag, const std::string& value,
                        const std::string& allowed) const;

  /// Returns the text that --help prints.
  std::string help() const;

 private:
  struct Option;
  /// Stores a value. Returns the allowed values if it is not valid, otherwise nothing.
  using Setter = std::function<std::optional<std::string>(const std::string&)>;
  enum class Kind : std::uint8_t { kValue, kFlag, kArgument, kArguments };

  Description add(Kind kind, const std::string& name, const std::string& value_name,
                  const std::string& help, const std::string& shown_default, Setter setter);
  OptionsOutcome parse_command_line(const std::vector<std::string>& arguments);
  OptionsOutcome read_file(const std::string& path, bool must_exist);
  OptionsOutcome apply_environment(const OptionsSources& sources);
  OptionsOutcome apply();
  OptionsOutcome error(const std::string& text) const;
  std::string table_name() const;

  std::string program_;
  std::string summary_;
  std::vector<std::unique_ptr<Option>> options_;
  std::vector<std::unique_ptr<Options>> subcommands_;
  std::string chosen_;
  std::string config_file_;
};

}  // namespace stdchk
