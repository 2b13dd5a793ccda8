#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/log.h"

namespace stdchk {

/// The version of this build, "0.1.0".
std::string_view version();

/// What a program does after its options were read.
struct OptionsOutcome {
  bool run = true;      ///< false: end with `exit_status`
  int exit_status = 0;  ///< 0 after --help and --version, 2 after a bad option
  std::string message;  ///< for standard output when the status is 0, otherwise for standard error
};

/// Where option values come from, apart from the command line.
struct OptionsSources {
  /// The value of an environment variable, or nothing.
  std::function<std::optional<std::string>(const std::string&)> environment;
  /// Read in this order when --config is not given; the later one wins. One that is absent is
  /// skipped.
  std::vector<std::string> config_files;
  /// The process's own environment, /etc/stdchk.toml and ~/.config/stdchk.toml.
  static OptionsSources system();
};

/// An Options holds the options of one program: "--chunk-size" on the command line, the environment
/// variable STDCHK_CHUNK_SIZE, and the key chunk-size in a TOML file. The first of them that is
/// there wins; without any the variable keeps the value that it has, the default.
///
/// In the file, keys stand in the table named after the program without "stdchk-", or after the
/// subcommand ([manager], [mount], [up]); keys before the first table hold for every program that
/// has such an option. An unknown key in the program's own table is an error.
///
/// Owns: the descriptions, not the variables, which must live until parse() returned.
/// Threads: one.
/// Errors: parse() answers with one sentence that names the option, its value, and what is allowed.
class Options {
 public:
  /// `program` is "stdchk-manager"; `summary` is one sentence for --help.
  Options(std::string program, std::string summary);
  ~Options();
  Options(const Options&) = delete;
  Options& operator=(const Options&) = delete;

  /// A described option may be made stricter: `options.text(...).required()`.
  class Description {
   public:
    Description& required();
    /// Neither the environment nor a file can set it.
    Description& command_line_only();

   private:
    friend class Options;
    Description(Options& options, std::size_t index) : options_(options), index_(index) {}
    Options& options_;
    std::size_t index_;
  };

  /// `flag` is the name with dashes in front, "--state", perhaps with a short form first,
  /// "-l,--long". `value_name` stands for the value in
  /// --help.
  Description text(const std::string& flag, std::string& value, const std::string& value_name,
                   const std::string& help);
  /// One of `allowed`. `former` are values that an earlier version took, each with the reason why
  /// it is refused.
  using Former = std::vector<std::pair<std::string, std::string>>;
  Description choice(const std::string& flag, std::string& value, std::vector<std::string> allowed,
                     const std::string& help, Former former = {});
  /// A number of bytes as core/units.h reads it, from `min` to `max`.
  Description size(const std::string& flag, std::uint64_t& value, std::uint64_t min,
                   std::uint64_t max, const std::string& help);
  /// A chunk size: a power of two within the limits.
  Description chunk_size(const std::string& flag, std::uint32_t& value, const std::string& help);
  /// Bytes in a second; 0 is no limit.
  Description rate(const std::string& flag, std::uint64_t& value, const std::string& help);
  Description count(const std::string& flag, std::uint32_t& value, std::uint32_t min,
                    std::uint32_t max, const std::string& help);
  /// A number of copies, or parity, as the number of a Redundancy (core/redundancy.h).
  Description redundancy(const std::string& flag, std::uint32_t& value, const std::string& help);
  /// "on" or "off".
  Description on_off(const std::string& flag, bool& value, const std::string& help);
  Description on_off(const std::string& flag, std::optional<bool>& value, const std::string& help);
  /// --log-level, as every daemon has it.
  Description log_level(log::Level& value);
  /// Present or absent on the command line; "on" or "off" in the environment and in a file.
  Description flag(const std::string& flag, bool& value, const std::string& help);
  /// An argument without a flag. Only from the command line.
  Description argument(const std::string& name, std::string& value, const std::string& help);
  Description arguments(const std::string& name, std::vector<std::string>& values,
                        const std::string& help);

  /// Options for "program NAME ...". parse() fills the one that was named, and needs one.
  Options& subcommand(const std::string& name, const std::string& summary);
  /// The name of the subcommand that parse() found; empty when there is none.
  const std::string& chosen() const { return chosen_; }
  /// The options of that subcommand; this object itself when there is none.
  const Options& chosen_options() const;
  /// What --config or STDCHK_CONFIG named; empty when the usual places were read.
  const std::string& config_file() const { return config_file_; }

  /// `arguments` without the program's own name.
  OptionsOutcome parse(const std::vector<std::string>& arguments, const OptionsSources& sources);
  /// As parse() with the system's sources; prints the outcome's message. A value: exit with it.
  std::optional<int> parse_or_exit(int argc, const char* const* argv);
  /// The outcome for an option whose value a program itself finds wrong.
  OptionsOutcome reject(const std::string& flag, const std::string& value,
                        const std::string& allowed) const;

  /// What --help prints.
  std::string help() const;

 private:
  struct Option;
  /// Stores a value; answers what is allowed when it is not, otherwise nothing.
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
