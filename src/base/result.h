// SPDX-License-Identifier: Apache-2.0
//
// Result<T>: a value, or the one-line reason why there is none.
//
// Everything a user can cause (a bad file, a wrong flag, a model that does not exist) travels as a
// Result; everything only a bug can cause is a HEADROOM_CHECK. No exception crosses a folder.
//
//   Result<Config> config = ReadConfig(path);
//   if (!config.ok()) return config.error();
//   Use(*config);
//
//   HEADROOM_ASSIGN_OR_RETURN(Config config, ReadConfig(path));   // the same in one line
#pragma once

#include <string>
#include <utility>
#include <variant>

#include "base/check.h"

namespace headroom {

// How the command line maps an error to an exit code; see cli/exit_code.h.
enum class ErrorCode {
  kBadInput,     // the user's file, flag or value: exit 2
  kUnsupported,  // well-formed, but Headroom cannot model it: exit 2
  kInternal,     // our own failure, the disk's or the system's: exit 3
};

// Why there is no value. `message` is one line that says what is wrong, where, and what to do.
struct Error {
  ErrorCode code = ErrorCode::kBadInput;
  std::string message;

  static Error BadInput(std::string message) { return {ErrorCode::kBadInput, std::move(message)}; }
  static Error Unsupported(std::string message) {
    return {ErrorCode::kUnsupported, std::move(message)};
  }
  static Error Internal(std::string message) { return {ErrorCode::kInternal, std::move(message)}; }

  // The same error with `where` put in front: "config.json: not a number".
  Error In(const std::string& where) const { return {code, where + ": " + message}; }
};

// Success with nothing to return, or an Error.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Error reason) : error_(std::move(reason)), ok_(false) {}

  bool ok() const { return ok_; }
  // REQUIRES: !ok().
  const Error& error() const {
    HEADROOM_CHECK(!ok_, "error() of a successful Status");
    return error_;
  }

 private:
  Error error_;
  bool ok_ = true;
};

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T result) : state_(std::in_place_index<0>, std::move(result)) {}
  Result(Error reason) : state_(std::in_place_index<1>, std::move(reason)) {}

  bool ok() const { return state_.index() == 0; }

  // REQUIRES: !ok().
  const Error& error() const {
    HEADROOM_CHECK(!ok(), "error() of a Result that holds a value");
    return std::get<1>(state_);
  }

  // REQUIRES: ok().
  T& value() & {
    HEADROOM_CHECK(ok(), std::get<1>(state_).message);
    return std::get<0>(state_);
  }
  const T& value() const& {
    HEADROOM_CHECK(ok(), std::get<1>(state_).message);
    return std::get<0>(state_);
  }
  T&& value() && {
    HEADROOM_CHECK(ok(), std::get<1>(state_).message);
    return std::get<0>(std::move(state_));
  }

  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::variant<T, Error> state_;
};

}  // namespace headroom

#define HEADROOM_CONCAT_INNER(a, b) a##b
#define HEADROOM_CONCAT(a, b) HEADROOM_CONCAT_INNER(a, b)

// Returns the error of a Status or Result expression from the enclosing function, if it has one.
#define HEADROOM_RETURN_IF_ERROR(expression)                            \
  do {                                                                  \
    if (auto&& headroom_status = (expression); !headroom_status.ok()) { \
      return headroom_status.error();                                   \
    }                                                                   \
  } while (false)

// Declares or assigns `target` from a Result, or returns its error from the enclosing function.
#define HEADROOM_ASSIGN_OR_RETURN(target, expression) \
  HEADROOM_ASSIGN_OR_RETURN_INNER(HEADROOM_CONCAT(headroom_result_, __LINE__), target, expression)
#define HEADROOM_ASSIGN_OR_RETURN_INNER(result, target, expression) \
  auto result = (expression);                                       \
  if (!result.ok()) return result.error();                          \
  target = std::move(result).value()
