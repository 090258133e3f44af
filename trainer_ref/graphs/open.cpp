#include <dlfcn.h>

#include <bascule/trainer_ref/graphs/graphs.h>
#include <bascule/transport/status.h>

namespace bascule::ref {

absl::StatusOr<std::unique_ptr<GraphRecorder>> open_graph_recorder() {
  void* library = ::dlopen("libbascule_graphs.so", RTLD_NOW | RTLD_LOCAL);
  void* make = library == nullptr ? nullptr : ::dlsym(library, "bascule_make_graph_recorder");
  if (make == nullptr) {
    return unavailable("graphs cannot be recorded (", ::dlerror(),
                       "); expected libbascule_graphs.so of a build with CUDA, after libtorch_cuda.so");
  }
  return std::unique_ptr<GraphRecorder>(reinterpret_cast<GraphRecorder* (*)()>(make)());
}

}  // namespace bascule::ref
