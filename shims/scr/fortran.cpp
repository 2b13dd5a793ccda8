// SCR's subroutines for Fortran, with the calling convention of gfortran 8 and later. Names have
// lower case and a '_' at the end. The lengths of texts follow all arguments, as size_t.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "shims/scr/scr.h"

namespace {

std::string from_fortran(const char* text, std::size_t length) {
  while (length > 0 && text[length - 1] == ' ') --length;
  return {text, length};
}

// Fills the rest with blanks. Returns whether the text fits.
bool to_fortran(const char* text, char* out, std::size_t length) {
  const std::string_view from = text;
  if (from.size() > length) return false;
  std::fill_n(std::copy(from.begin(), from.end(), out), length - from.size(), ' ');
  return true;
}

}  // namespace

extern "C" {

void scr_init_(int* error) { *error = SCR_Init(); }
void scr_finalize_(int* error) { *error = SCR_Finalize(); }
void scr_should_exit_(int* flag, int* error) { *error = SCR_Should_exit(flag); }
void scr_need_checkpoint_(int* flag, int* error) { *error = SCR_Need_checkpoint(flag); }
void scr_start_checkpoint_(int* error) { *error = SCR_Start_checkpoint(); }
void scr_complete_checkpoint_(const int* valid, int* error) {
  *error = SCR_Complete_checkpoint(*valid);
}
void scr_complete_output_(const int* valid, int* error) { *error = SCR_Complete_output(*valid); }
void scr_complete_restart_(const int* valid, int* error) { *error = SCR_Complete_restart(*valid); }

void scr_get_version_(char* version, int* error, std::size_t length) {
  *error = to_fortran(SCR_Get_version(), version, length) ? SCR_SUCCESS : SCR_FAILURE;
}

void scr_config_(const char* config, char* value, int* error, std::size_t config_length,
                 std::size_t value_length) {
  const std::string text = from_fortran(config, config_length);
  const char* found = SCR_Config(text.c_str());
  *error = found != nullptr && to_fortran(found, value, value_length) ? SCR_SUCCESS : SCR_FAILURE;
  // The caller owns the answer to a question, and no other text.
  const bool is_question = text.find('=', text.find_last_of(' ') + 1) == std::string::npos;
  if (is_question) std::free(const_cast<char*>(found));
}

void scr_route_file_(const char* name, char* file, int* error, std::size_t name_length,
                     std::size_t file_length) {
  char path[SCR_MAX_FILENAME] = "";
  *error = SCR_Route_file(from_fortran(name, name_length).c_str(), path);
  if (!to_fortran(path, file, file_length)) *error = SCR_FAILURE;
}

void scr_start_output_(const char* name, const int* flags, int* error, std::size_t length) {
  *error = SCR_Start_output(from_fortran(name, length).c_str(), *flags);
}

void scr_have_restart_(int* flag, char* name, int* error, std::size_t length) {
  char text[SCR_MAX_FILENAME] = "";
  *error = SCR_Have_restart(flag, text);
  if (!to_fortran(text, name, length)) *error = SCR_FAILURE;
}

void scr_start_restart_(char* name, int* error, std::size_t length) {
  char text[SCR_MAX_FILENAME] = "";
  *error = SCR_Start_restart(text);
  if (!to_fortran(text, name, length)) *error = SCR_FAILURE;
}

void scr_current_(const char* name, int* error, std::size_t length) {
  *error = SCR_Current(from_fortran(name, length).c_str());
}

void scr_drop_(const char* name, int* error, std::size_t length) {
  *error = SCR_Drop(from_fortran(name, length).c_str());
}

void scr_delete_(const char* name, int* error, std::size_t length) {
  *error = SCR_Delete(from_fortran(name, length).c_str());
}

}  // extern "C"
