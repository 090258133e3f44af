#include "endpoint_folder.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>

#include <map>
#include <string>

#include "errors.h"
#include "unlocked.h"
#include <bascule/receiver/endpoint_folder.h>

namespace bascule::python {
namespace {

// Threads: one at a time.
class EndpointFolderHandle {
 public:
  explicit EndpointFolderHandle(const std::string& url) : folder_(open(url)) {}
  std::map<std::string, std::string> endpoints() {
    const Unlocked unlocked;
    return value_of(folder_.endpoints());
  }
  int fileno() const { return folder_.descriptor(); }

 private:
  static EndpointFolder open(const std::string& url) {
    const Unlocked unlocked;
    return value_of(EndpointFolder::open(url));
  }

  EndpointFolder folder_;
};

}  // namespace

void bind_endpoint_folder(nb::module_& module) {
  nb::class_<EndpointFolderHandle>(module, "EndpointFolder")
      .def(nb::init<const std::string&>(), nb::arg("url"))
      .def("endpoints", &EndpointFolderHandle::endpoints)
      .def("fileno", &EndpointFolderHandle::fileno);
}

}  // namespace bascule::python
