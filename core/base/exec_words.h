#pragma once

#include <string>
#include <vector>

namespace stdchk {

/// Returns the words as execvp(3) and posix_spawn(3) take them, with a null pointer at the end. The
/// pointers are valid as long as `words` is unchanged.
inline std::vector<char*> exec_words(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  // Neither function changes the words (POSIX, exec, rationale).
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}
std::vector<char*> exec_words(std::vector<std::string>&&) = delete;

}  // namespace stdchk
