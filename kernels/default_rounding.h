// DefaultRounding: within its scope, the calling thread's floating-point arithmetic gives the same bits as on any
// thread.
#pragma once

#include <cfenv>

namespace bascule::inline v0::kernels {

// The calling thread may round in another direction, or flush denormals (torch.set_flush_denormal).
class DefaultRounding {
 public:
  DefaultRounding() {
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultRounding() { std::fesetenv(&before_); }
  DefaultRounding(const DefaultRounding&) = delete;
  DefaultRounding& operator=(const DefaultRounding&) = delete;

 private:
  std::fenv_t before_{};
};

}  // namespace bascule::inline v0::kernels
