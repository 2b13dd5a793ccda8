#pragma once

#include <cerrno>
#include <cstdint>
#include <string>
#include <tl/expected.hpp>
#include <type_traits>

#include "core/base/error_codes.h"

namespace stdchk {

/// An Error is a cheaply copied value that says what failed.
///
/// Owns: nothing; `where` is a string with static storage duration.
/// Not: a text for people. describe() makes that text where the error is handled.
struct Error {
  Code code = Code::kInternal;
  std::int32_t os_errno = 0;  ///< errno of the system call that failed; 0: no system call
  const char* where = "";     ///< the operation that failed, for example "manager.commit"
};
static_assert(std::is_trivially_copyable_v<Error>);

/// A Result holds a value, or the Error that explains why there is none. The compiler warns when it
/// is ignored.
template <class T>
class [[nodiscard]] Result : public tl::expected<T, Error> {
 public:
  using tl::expected<T, Error>::expected;
  Result(tl::expected<T, Error> other) : tl::expected<T, Error>(std::move(other)) {}
};

using Status = Result<void>;

/// Makes the failure side of any Result.
inline tl::unexpected<Error> fail(Code code, const char* where, int os_errno = 0) {
  return tl::unexpected<Error>(Error{code, os_errno, where});
}

/// Makes a failure from the present errno, with the code closest to it.
tl::unexpected<Error> fail_errno(const char* where);

/// Passes the error of another Result on.
inline tl::unexpected<Error> fail(const Error& error) { return tl::unexpected<Error>(error); }

/// Returns a text for people: the failed operation, the code's sentence, and the errno's text.
std::string describe(const Error& error);

/// Returns the errno that an application sees for `error`.
int to_errno(const Error& error);

}  // namespace stdchk

/// Returns the error of `expression` from the calling function, or continues.
#define STDCHK_TRY(expression)                                       \
  do {                                                               \
    if (auto try_result_ = (expression); !try_result_.has_value()) { \
      return ::stdchk::fail(try_result_.error());                    \
    }                                                                \
  } while (false)

/// Assigns the value of `expression` to `declaration`, or returns its error.
#define STDCHK_ASSIGN(declaration, expression) \
  STDCHK_ASSIGN_2(STDCHK_JOIN(assign_result_, __LINE__), declaration, expression)
#define STDCHK_ASSIGN_2(name, declaration, expression)        \
  auto name = (expression);                                   \
  if (!name.has_value()) return ::stdchk::fail(name.error()); \
  declaration = std::move(*name)
#define STDCHK_JOIN(a, b) STDCHK_JOIN_2(a, b)
#define STDCHK_JOIN_2(a, b) a##b
