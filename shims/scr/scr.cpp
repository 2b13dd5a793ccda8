#include "shims/scr/scr.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "shims/scr/job.h"

// SCR's interface has no handle: a process has one configuration and one job.
namespace {

using stdchk::shims::Job;
using stdchk::shims::Settings;

Settings& settings() {
  static Settings only;
  return only;
}

std::unique_ptr<Job>& job() {
  static std::unique_ptr<Job> only;
  return only;
}

int result(const char* function, const std::string& problem) {
  if (problem.empty()) return SCR_SUCCESS;
  std::fprintf(stderr, "libscr (stdchk): %s: %s\n", function, problem.c_str());
  return SCR_FAILURE;
}

int absent(const char* function) { return result(function, "SCR_Init was not called, or failed"); }

// A buffer of the program has SCR_MAX_FILENAME bytes.
std::string copy_out(const std::string& text, char* buffer) {
  if (text.size() >= SCR_MAX_FILENAME) return "the path is longer than SCR_MAX_FILENAME: " + text;
  if (buffer != nullptr) std::memcpy(buffer, text.c_str(), text.size() + 1);
  return "";
}

}  // namespace

extern "C" {

const char* SCR_Config(const char* config) {
  if (config == nullptr) return nullptr;
  std::istringstream words(config);
  std::string top, key, word;
  const char* last = nullptr;
  while (words >> word) {
    const auto equals = word.find('=');
    key = (top.empty() ? "" : top + " ") + word.substr(0, equals);
    if (equals == std::string::npos) {
      const auto value = settings().find(key);
      const char* environment = std::getenv(key.c_str());
      if (environment != nullptr) return ::strdup(environment);
      return value ? ::strdup(value->c_str()) : nullptr;
    }
    if (job()) return nullptr;  // too late
    if (equals + 1 == word.size()) {
      settings().remove(key);
      last = nullptr;
    } else {
      last = settings().set(key, word.substr(equals + 1)).c_str();
    }
    if (top.empty()) top = word;
  }
  return last;
}

const char* SCR_Configf(const char* format, ...) {
  std::va_list arguments;
  va_start(arguments, format);
  char text[4 * SCR_MAX_FILENAME];
  const int length = std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return length >= 0 && length < static_cast<int>(sizeof text) ? SCR_Config(text) : nullptr;
}

int SCR_Init(void) {
  if (job()) return result("SCR_Init", "it was called before");
  return result("SCR_Init", Job::start(settings(), &job()));
}

int SCR_Finalize(void) {
  if (!job()) return absent("SCR_Finalize");
  job()->finish();
  job().reset();
  return SCR_SUCCESS;
}

char* SCR_Get_version(void) {
  static char version[] = SCR_VERSION;
  return version;
}

int SCR_Should_exit(int* flag) {
  if (!job()) return absent("SCR_Should_exit");
  *flag = job()->should_exit() ? 1 : 0;
  return SCR_SUCCESS;
}

int SCR_Route_file(const char* name, char* file) {
  if (!job()) return absent("SCR_Route_file");
  std::string path;
  std::string problem = job()->route(name, &path);
  if (problem.empty()) problem = copy_out(path, file);
  return result("SCR_Route_file", problem);
}

int SCR_Need_checkpoint(int* flag) {
  if (!job()) return absent("SCR_Need_checkpoint");
  *flag = job()->needs_checkpoint() ? 1 : 0;
  return SCR_SUCCESS;
}

int SCR_Start_output(const char* name, int flags) {
  if (!job()) return absent("SCR_Start_output");
  return result("SCR_Start_output", job()->start_output(name != nullptr ? name : "", flags));
}

int SCR_Complete_output(int valid) {
  if (!job()) return absent("SCR_Complete_output");
  const int done = result("SCR_Complete_output", job()->complete_output(valid != 0));
  if (done == SCR_SUCCESS && job()->ends_program()) {
    std::fprintf(stderr,
                 "libscr (stdchk): the program ends here, because of SCR_HALT_SECONDS or the file "
                 "\"halt\"\n");
    SCR_Finalize();
    MPI_Finalize();
    std::exit(0);
  }
  return done;
}

int SCR_Start_checkpoint(void) { return SCR_Start_output(nullptr, SCR_FLAG_CHECKPOINT); }
int SCR_Complete_checkpoint(int valid) { return SCR_Complete_output(valid); }

int SCR_Have_restart(int* flag, char* name) {
  if (!job()) return absent("SCR_Have_restart");
  const auto found = job()->restart_name();
  *flag = found ? 1 : 0;
  return found ? result("SCR_Have_restart", copy_out(*found, name)) : SCR_SUCCESS;
}

int SCR_Start_restart(char* name) {
  if (!job()) return absent("SCR_Start_restart");
  const auto found = job()->restart_name();
  std::string problem = job()->start_restart();
  if (problem.empty() && found) problem = copy_out(*found, name);
  return result("SCR_Start_restart", problem);
}

int SCR_Complete_restart(int valid) {
  if (!job()) return absent("SCR_Complete_restart");
  return result("SCR_Complete_restart", job()->complete_restart(valid != 0));
}

int SCR_Current(const char* name) {
  if (!job()) return absent("SCR_Current");
  job()->set_current(name);
  return SCR_SUCCESS;
}

int SCR_Drop(const char* name) {
  if (!job()) return absent("SCR_Drop");
  return result("SCR_Drop", job()->remove(name, true));
}

int SCR_Delete(const char* name) {
  if (!job()) return absent("SCR_Delete");
  return result("SCR_Delete", job()->remove(name, false));
}

}  // extern "C"
