#include "errors.h"

#include <exception>
#include <string>
#include <string_view>

#include <nanobind/stl/string.h>

#include <bascule/transport/status.h>

namespace bascule::python {

namespace {

// The module bascule.errors, also once it is no longer in sys.modules.
nb::object errors() {
  static PyObject* module = nullptr;
  if (module == nullptr) module = nb::module_::import_("bascule.errors").release().ptr();
  return nb::borrow(module);
}

}  // namespace

absl::Duration timeout_of(std::optional<double> seconds) {
  if (!seconds) return absl::InfiniteDuration();
  if (!(*seconds >= 0)) throw Failure{invalid_argument("timeout: expected seconds, 0 or more, found ", *seconds)};
  return absl::Seconds(*seconds);
}

nb::object error_of(const absl::Status& status) {
  if (status.ok()) return nb::none();
  const std::string_view text = message_of(status);
  return errors().attr("error_of")(absl::StatusCodeToString(status.code()), nb::str(text.data(), text.size()));
}

absl::Status status_of(nb::handle exception) {
  const auto text = nb::cast<std::string>(errors().attr("text_of")(exception));
  const auto code = nb::cast<std::string>(errors().attr("code_of")(exception));
  for (int number = 1; number <= static_cast<int>(absl::StatusCode::kUnauthenticated); ++number)
    if (const auto each = static_cast<absl::StatusCode>(number); absl::StatusCodeToString(each) == code)
      return {each, text};
  return absl::InternalError(text);
}

void bind_errors() {
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const Failure& failure) {
      try {
        const nb::object error = error_of(failure.status);
        PyErr_SetObject(error.type().ptr(), error.ptr());
      } catch (nb::python_error& raised) {  // by a signal's handler, which runs as soon as Python code does
        raised.restore();
      }
    }
  });
}

}  // namespace bascule::python
