#include "core/base/result.h"

#include <cstring>

namespace stdchk {
namespace {

struct CodeInfo {
  Code code;
  std::string_view name;
  int os_errno;
  Retry retry;
  std::string_view sentence;
};

constexpr CodeInfo kCodes[] = {
#define STDCHK_CODE_INFO(name, number, os, retry, text) \
  {Code::name, std::string_view(#name).substr(1), os, Retry::retry, text},
    STDCHK_ERROR_CODES(STDCHK_CODE_INFO)
#undef STDCHK_CODE_INFO
};

const CodeInfo& info(Code code) {
  for (const CodeInfo& entry : kCodes) {
    if (entry.code == code) return entry;
  }
  return kCodes[0];
}

Code code_of_errno(int os_errno) {
  switch (os_errno) {
    case ENOENT:
      return Code::kNotFound;
    case EEXIST:
      return Code::kExists;
    case ENOTDIR:
      return Code::kNotDirectory;
    case EISDIR:
      return Code::kIsDirectory;
    case ENOTEMPTY:
      return Code::kNotEmpty;
    case ENAMETOOLONG:
      return Code::kNameTooLong;
    case EACCES:
    case EPERM:
      return Code::kPermission;
    case ENOMEM:
      return Code::kNoMemory;
    case EBUSY:
      return Code::kBusy;
    case EINVAL:
      return Code::kInvalidArgument;
    case EROFS:
      return Code::kReadOnly;
    case ETIMEDOUT:
      return Code::kDeadline;
    default:
      return Code::kSystem;
  }
}

}  // namespace

std::string_view code_name(Code code) { return info(code).name; }
Retry retry_class(Code code) { return info(code).retry; }

Code code_from_number(std::uint16_t number) { return info(static_cast<Code>(number)).code; }

tl::unexpected<Error> fail_errno(const char* where) {
  const int os_errno = errno;
  return fail(code_of_errno(os_errno), where, os_errno);
}

std::string describe(const Error& error) {
  std::string text = error.where;
  text += ": ";
  text += info(error.code).sentence;
  if (error.os_errno != 0) {
    text += " (";
    text += std::strerror(error.os_errno);
    text += ")";
  }
  return text;
}

int to_errno(const Error& error) {
  if (error.code == Code::kSystem && error.os_errno != 0) return error.os_errno;
  return info(error.code).os_errno;
}

}  // namespace stdchk
