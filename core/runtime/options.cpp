#include "core/runtime/options.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <toml++/toml.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <bit>
#include <charconv>
#include <cstdio>
#include <cstdlib>

#include "core/base/assert.h"
#include "core/base/descriptor.h"
#include "core/base/limits.h"
#include "core/base/units.h"
#include "core/base/whole_io.h"
#include "core/policy/redundancy.h"

namespace stdchk {
namespace {

constexpr const char* kSizeExample = "a size such as 64K, 512M or 2GiB";

std::optional<bool> parse_on_off(const std::string& text) {
  if (text == "on" || text == "true" || text == "1" || text == "yes") return true;
  if (text == "off" || text == "false" || text == "0" || text == "no") return false;
  return std::nullopt;
}

/// Returns "a, b or c".
std::string one_of(const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += i + 1 == words.size() ? " or " : ", ";
    text += words[i];
  }
  return text;
}

std::string environment_name(const std::string& flag) {
  std::string name = "STDCHK_";
  for (char c : flag.substr(2)) {
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

/// Returns a scalar of a TOML file in the form that the command line uses.
std::optional<std::string> as_text(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return std::to_string(number->get());
  if (const auto* flag = node.as_boolean()) return std::string(flag->get() ? "on" : "off");
  return std::nullopt;
}

}  // namespace

struct Options::Option {
  Kind kind;
  std::string name;   ///< "--state", or "MOUNTPOINT" for an argument
  std::string forms;  ///< including the short form: "-l,--long"
  std::string value_name;
  std::string help;
  std::string shown_default;
  Setter setter;
  bool required = false;
  bool command_line_only = false;
  // Values found so far; a later source does not replace an earlier one.
  std::vector<std::string> given;  ///< on the command line
  std::optional<std::string> text;
  std::string origin;  ///< " (from the environment variable X)", empty for the command line
  // The value from the files: the last file wins, and the environment overrides it.
  std::optional<std::string> file_text;
  std::string file_origin;
  CLI::Option* parsed = nullptr;
};

std::string_view version() { return STDCHK_VERSION; }

namespace {

constexpr std::size_t kConfigBytesMax = std::size_t{1} << 20;

/// Reads a configuration file, or nothing. Options name programs to run, and sudo(8) and su(1) may
/// leave another user's HOME. The default files must therefore belong to root or to this user.
std::optional<std::string> configuration(const std::string& path, bool is_named) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  struct stat facts {};
  if (!file || ::fstat(file.get(), &facts) != 0) return std::nullopt;
  const bool is_own = facts.st_uid == ::geteuid() || facts.st_uid == 0;
  const bool is_changed_by_all = (facts.st_mode & S_IWOTH) != 0;
  if (!is_named && !path.starts_with("/etc/") && (!is_own || is_changed_by_all)) {
    fmt::print(stderr, "{}: another user can change it, so it is not read\n", path);
    return std::nullopt;
  }
  std::string text;
  if (!read_text(file.get(), kConfigBytesMax, text)) return std::nullopt;
  if (text.size() == kConfigBytesMax) return std::nullopt;
  return text;
}

}  // namespace

OptionsSources OptionsSources::system() {
  OptionsSources sources;
  sources.environment = [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return std::string(value);
  };
  sources.config_files.emplace_back("/etc/stdchk.toml");
  if (const char* home = std::getenv("HOME"); home != nullptr && home[0] != '\0') {
    sources.config_files.push_back(std::string(home) + "/.config/stdchk.toml");
  }
  return sources;
}

Options::Options(std::string program, std::string summary)
    : program_(std::move(program)), summary_(std::move(summary)) {}
Options::~Options() = default;

Options::Description& Options::Description::required() {
  options_.options_[index_]->required = true;
  return *this;
}

Options::Description& Options::Description::command_line_only() {
  options_.options_[index_]->command_line_only = true;
  return *this;
}

Options::Description Options::add(Kind kind, const std::string& name, const std::string& value_name,
                                  const std::string& help, const std::string& shown_default,
                                  Setter setter) {
  const bool has_flag = kind == Kind::kValue || kind == Kind::kFlag;
  STDCHK_ASSERT(!has_flag || name.starts_with("-"));
  auto option = std::make_unique<Option>();
  const auto comma = name.find(',');
  option->forms = name;
  option->kind = kind;
  option->name = comma == std::string::npos ? name : name.substr(comma + 1);
  option->value_name = value_name;
  option->help = help;
  option->shown_default = shown_default;
  option->setter = std::move(setter);
  option->command_line_only = !has_flag;
  options_.push_back(std::move(option));
  return Description(*this, options_.size() - 1);
}

Options::Description Options::text(const std::string& flag, std::string& value,
                                   const std::string& value_name, const std::string& help) {
  return add(Kind::kValue, flag, value_name, help, value,
             [&value](const std::string& text) -> std::optional<std::string> {
               if (text.empty()) return "any text that is not empty";
               value = text;
               return std::nullopt;
             });
}

Options::Description Options::choice(const std::string& flag, std::string& value,
                                     std::vector<std::string> allowed, const std::string& help,
                                     Former former) {
  std::string names = one_of(allowed);
  return add(Kind::kValue, flag, "NAME", help + " (" + names + ")", value,
             [&value, allowed = std::move(allowed), former = std::move(former),
              names](const std::string& text) -> std::optional<std::string> {
               const auto gone = std::ranges::find(former, text, &Former::value_type::first);
               if (gone != former.end()) return names + "; " + gone->second;
               if (std::ranges::find(allowed, text) == allowed.end()) return names;
               value = text;
               return std::nullopt;
             });
}

Options::Description Options::log_level(log::Level& value) {
  const std::vector<std::string> names = {"debug", "info", "warning", "error"};
  return add(Kind::kValue, "--log-level", "NAME",
             "least important lines to log (" + one_of(names) + ")",
             names[static_cast<std::size_t>(value)],
             [&value, names](const std::string& text) -> std::optional<std::string> {
               const auto found = std::ranges::find(names, text);
               if (found == names.end()) return one_of(names);
               value = static_cast<log::Level>(found - names.begin());
               return std::nullopt;
             });
}

Options::Description Options::size(const std::string& flag, std::uint64_t& value, std::uint64_t min,
                                   std::uint64_t max, const std::string& help) {
  return add(Kind::kValue, flag, "SIZE", help, value == 0 ? "" : format_bytes(value),
             [&value, min, max](const std::string& text) -> std::optional<std::string> {
               auto bytes = parse_bytes(text);
               if (!bytes || *bytes < min || *bytes > max) {
                 return fmt::format("{} from {} to {}", kSizeExample, format_bytes(min),
                                    format_bytes(max));
               }
               value = *bytes;
               return std::nullopt;
             });
}

Options::Description Options::chunk_size(const std::string& flag, std::uint32_t& value,
                                         const std::string& help) {
  return add(Kind::kValue, flag, "SIZE", help, value == 0 ? "" : format_bytes(value),
             [&value](const std::string& text) -> std::optional<std::string> {
               auto bytes = parse_bytes(text);
               if (!bytes || *bytes < limits::kChunkBytesMin || *bytes > limits::kChunkBytesMax ||
                   !std::has_single_bit(*bytes)) {
                 return fmt::format("a power of two from {} to {}, such as 1M",
                                    format_bytes(limits::kChunkBytesMin),
                                    format_bytes(limits::kChunkBytesMax));
               }
               value = static_cast<std::uint32_t>(*bytes);
               return std::nullopt;
             });
}

Options::Description Options::rate(const std::string& flag, std::uint64_t& value,
                                   const std::string& help) {
  return add(Kind::kValue, flag, "RATE", help, value == 0 ? "no limit" : format_bytes(value) + "/s",
             [&value](const std::string& text) -> std::optional<std::string> {
               auto bytes = parse_rate(text);
               if (!bytes) return "a rate such as 100M, 100M/s, or 0 for no limit";
               value = *bytes;
               return std::nullopt;
             });
}

Options::Description Options::count(const std::string& flag, std::uint32_t& value,
                                    std::uint32_t min, std::uint32_t max, const std::string& help) {
  return add(Kind::kValue, flag, "N", help, value == 0 ? "" : std::to_string(value),
             [&value, min, max](const std::string& text) -> std::optional<std::string> {
               std::uint32_t number = 0;
               const char* end = text.data() + text.size();
               auto [stop, code] = std::from_chars(text.data(), end, number);
               if (code != std::errc{} || stop != end || number < min || number > max) {
                 return fmt::format("a whole number from {} to {}", min, max);
               }
               value = number;
               return std::nullopt;
             });
}

Options::Description Options::redundancy(const std::string& flag, std::uint32_t& value,
                                         const std::string& help) {
  return add(Kind::kValue, flag, "COPIES", help, value == 0 ? "" : redundancy_text(value),
             [&value](const std::string& text) -> std::optional<std::string> {
               const auto parsed = parse_redundancy(text);
               if (!parsed && text != "0") {
                 return fmt::format("a number of copies from 0 to {}, or {}", limits::kCopiesMax,
                                    kParityAllowed);
               }
               value = parsed ? parsed->number() : 0;
               return std::nullopt;
             });
}

Options::Description Options::on_off(const std::string& flag, bool& value,
                                     const std::string& help) {
  return add(Kind::kValue, flag, "on|off", help, value ? "on" : "off",
             [&value](const std::string& text) -> std::optional<std::string> {
               auto parsed = parse_on_off(text);
               if (!parsed) return "on or off";
               value = *parsed;
               return std::nullopt;
             });
}

Options::Description Options::on_off(const std::string& flag, std::optional<bool>& value,
                                     const std::string& help) {
  return add(Kind::kValue, flag, "on|off", help, "",
             [&value](const std::string& text) -> std::optional<std::string> {
               auto parsed = parse_on_off(text);
               if (!parsed) return "on or off";
               value = *parsed;
               return std::nullopt;
             });
}

Options::Description Options::flag(const std::string& flag, bool& value, const std::string& help) {
  Description description = on_off(flag, value, help);
  options_.back()->kind = Kind::kFlag;
  options_.back()->shown_default.clear();
  return description;
}

Options::Description Options::argument(const std::string& name, std::string& value,
                                       const std::string& help) {
  return add(Kind::kArgument, name, "", help, "",
             [&value](const std::string& text) -> std::optional<std::string> {
               if (text.empty()) return "any text that is not empty";
               value = text;
               return std::nullopt;
             });
}

Options::Description Options::arguments(const std::string& name, std::vector<std::string>& values,
                                        const std::string& help) {
  return add(Kind::kArguments, name, "", help, "",
             [&values](const std::string& text) -> std::optional<std::string> {
               values.push_back(text);
               return std::nullopt;
             });
}

Options& Options::subcommand(const std::string& name, const std::string& summary) {
  subcommands_.push_back(std::make_unique<Options>(program_ + " " + name, summary));
  return *subcommands_.back();
}

const Options& Options::chosen_options() const {
  for (const auto& subcommand : subcommands_) {
    if (subcommand->program_ == program_ + " " + chosen_) return *subcommand;
  }
  return *this;
}

std::string Options::table_name() const {
  if (auto space = program_.rfind(' '); space != std::string::npos) {
    return program_.substr(space + 1);
  }
  constexpr std::string_view prefix = "stdchk-";
  return program_.starts_with(prefix) ? program_.substr(prefix.size()) : program_;
}

OptionsOutcome Options::error(const std::string& text) const {
  return {.run = false, .exit_status = 2, .message = program_ + ": " + text};
}

OptionsOutcome Options::reject(const std::string& flag, const std::string& value,
                               const std::string& allowed) const {
  return error(fmt::format("{} \"{}\" is not valid; allowed: {}", flag, value, allowed));
}

OptionsOutcome Options::parse(const std::vector<std::string>& arguments,
                              const OptionsSources& sources) {
  if (!subcommands_.empty() && !arguments.empty() && !arguments[0].starts_with("-")) {
    for (auto& subcommand : subcommands_) {
      if (subcommand->program_ != program_ + " " + arguments[0]) continue;
      chosen_ = arguments[0];
      return subcommand->parse({arguments.begin() + 1, arguments.end()}, sources);
    }
    return error(fmt::format("there is no command \"{}\"; see {} --help", arguments[0], program_));
  }
  if (auto outcome = parse_command_line(arguments); !outcome.run) return outcome;
  if (!subcommands_.empty()) return error(fmt::format("no command given; see {} --help", program_));
  if (config_file_.empty()) config_file_ = sources.environment("STDCHK_CONFIG").value_or("");
  if (!config_file_.empty()) {
    if (auto outcome = read_file(config_file_, true); !outcome.run) return outcome;
  } else {
    for (const auto& path : sources.config_files) {
      if (auto outcome = read_file(path, false); !outcome.run) return outcome;
    }
  }
  if (auto outcome = apply_environment(sources); !outcome.run) return outcome;
  return apply();
}

OptionsOutcome Options::parse_command_line(const std::vector<std::string>& arguments) {
  CLI::App app{summary_, program_};
  app.set_help_flag();  // help() replaces it: it also shows environment variables and defaults
  bool wants_help = false;
  bool wants_version = false;
  try {
    app.add_flag("-h,--help", wants_help);
    app.add_flag("--version", wants_version);
    app.add_option("--config", config_file_)->take_last();
    for (auto& option : options_) {
      switch (option->kind) {
        case Kind::kFlag:
          option->parsed = app.add_flag(option->forms);
          break;
        case Kind::kArgument:
          option->parsed =
              app.add_option(option->forms, option->given)->expected(1)->allow_extra_args(false);
          break;
        case Kind::kValue:
          option->parsed = app.add_option(option->forms, option->given)
                               ->expected(1)
                               ->allow_extra_args(false)
                               ->take_last();
          break;
        case Kind::kArguments:
          option->parsed = app.add_option(option->forms, option->given);
          break;
      }
    }
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
    app.parse(reversed);
  } catch (const CLI::ExtrasError&) {
    const auto extra = app.remaining();
    if (!wants_help) {
      return error(fmt::format("\"{}\" is not an option or argument of this command; see {} --help",
                               extra.empty() ? "" : extra.front(), program_));
    }
  } catch (const CLI::ArgumentMismatch& problem) {
    const std::string text = problem.what();  // begins with the option's name and a colon
    return error(
        fmt::format("{} needs a value; see {} --help", text.substr(0, text.find(':')), program_));
  } catch (const CLI::Error& problem) {
    return error(fmt::format("{}; see {} --help", problem.what(), program_));
  }
  if (wants_help) return {.run = false, .exit_status = 0, .message = help()};
  if (wants_version) {
    return {.run = false, .exit_status = 0, .message = fmt::format("stdchk {}\n", version())};
  }
  for (auto& option : options_) {
    if (option->kind == Kind::kFlag && option->parsed->count() > 0) option->given = {"on"};
    option->parsed = nullptr;
  }
  return {};
}

OptionsOutcome Options::read_file(const std::string& path, bool must_exist) {
  if (::access(path.c_str(), F_OK) != 0 && !must_exist) return {};
  const auto content = configuration(path, must_exist);
  if (!content)
    return must_exist ? error("the configuration file " + path + " cannot be read")
                      : OptionsOutcome{};
  toml::table file;
  try {
    file = toml::parse(*content, path);
  } catch (const toml::parse_error& problem) {
    return error(fmt::format("the configuration file {} is not valid: {} (line {})", path,
                             problem.description(), problem.source().begin.line));
  }
  auto take = [&](const toml::table& table, bool own) -> OptionsOutcome {
    for (const auto& [key, node] : table) {
      if (node.is_table()) continue;
      const std::string flag = "--" + std::string(key.str());
      auto found = std::ranges::find_if(options_, [&](const auto& option) {
        return option->name == flag && !option->command_line_only;
      });
      if (found == options_.end()) {
        if (!own) continue;  // an option of another program
        return error(fmt::format("the configuration file {} sets {} in [{}], which is no option",
                                 path, std::string(key.str()), table_name()));
      }
      auto text = as_text(node);
      if (!text) {
        return error(
            fmt::format("the configuration file {} must give {} one string, number or "
                        "truth value",
                        path, std::string(key.str())));
      }
      (*found)->file_text = *text;
      (*found)->file_origin = fmt::format(" (from {})", path);
    }
    return {};
  };
  if (auto outcome = take(file, false); !outcome.run) return outcome;
  const toml::table* own = file[table_name()].as_table();
  return own == nullptr ? OptionsOutcome{} : take(*own, true);
}

OptionsOutcome Options::apply_environment(const OptionsSources& sources) {
  for (auto& option : options_) {
    if (!option->given.empty()) {
      option->text = option->given.back();
    } else if (option->command_line_only) {
      continue;
    } else if (auto value = sources.environment(environment_name(option->name))) {
      option->text = *value;
      option->origin =
          fmt::format(" (from the environment variable {})", environment_name(option->name));
    } else if (option->file_text) {
      option->text = option->file_text;
      option->origin = option->file_origin;
    }
  }
  return {};
}

OptionsOutcome Options::apply() {
  for (auto& option : options_) {
    if (option->kind == Kind::kArguments) {
      for (const auto& value : option->given) (void)option->setter(value);
    } else if (option->text) {
      if (auto allowed = option->setter(*option->text)) {
        return error(fmt::format("{} \"{}\"{} is not valid; allowed: {}", option->name,
                                 *option->text, option->origin, *allowed));
      }
    }
    if (option->required && !option->text && option->given.empty()) {
      return error(
          fmt::format("{} is missing ({}); see {} --help", option->name, option->help, program_));
    }
  }
  return {};
}

std::optional<int> Options::parse_or_exit(int argc, const char* const* argv) {
  std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  const OptionsOutcome outcome = parse(arguments, OptionsSources::system());
  if (outcome.run) return std::nullopt;
  if (outcome.exit_status == 0) {
    std::fputs(outcome.message.c_str(), stdout);
  } else {
    std::fprintf(stderr, "%s\n", outcome.message.c_str());
  }
  return outcome.exit_status;
}

std::string Options::help() const {
  std::string usage = program_;
  std::string lines;
  auto line = [&lines](const std::string& left, const std::string& right) {
    lines += left.size() < 30 ? fmt::format("  {:<30}{}\n", left, right)
                              : fmt::format("  {}\n{:32}{}\n", left, "", right);
  };
  if (!subcommands_.empty()) usage += " COMMAND ...";
  for (const auto& subcommand : subcommands_) {
    line(subcommand->program_.substr(program_.size() + 1), subcommand->summary_);
  }
  bool any_environment = false;
  for (const auto& option : options_) {
    std::string left = option->forms;
    if (option->kind == Kind::kValue) left += " " + option->value_name;
    if (option->kind == Kind::kArguments) left += "...";
    if (option->required) {
      usage += " " + left;
    } else if (option->kind == Kind::kArgument || option->kind == Kind::kArguments) {
      usage += " [" + left + "]";
    }
    std::string right = option->help;
    if (!option->shown_default.empty()) right += fmt::format(" [{}]", option->shown_default);
    line(left, right);
    any_environment |= !option->command_line_only;
  }
  line("--config FILE",
       "read options from this TOML file instead of /etc/stdchk.toml and "
       "~/.config/stdchk.toml");
  line("--help, --version", "");
  std::string text = fmt::format("Usage: {}{}\n{}\n\n{}", usage,
                                 options_.empty() ? "" : " [OPTION]...", summary_, lines);
  if (any_environment) {
    text +=
        "\nEvery --some-option can also be set by the environment variable "
        "STDCHK_SOME_OPTION, or as\nsome-option in the file. Precedence: command line, "
        "environment, file, default in [ ].\n";
  }
  return text;
}

}  // namespace stdchk
