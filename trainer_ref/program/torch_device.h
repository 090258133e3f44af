// --device of the programs: the CPU, or a GPU, for which LibTorch's GPU half is opened at run time.
//
// The programs do not link that half, so that one binary runs with and without a GPU.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <string_view>

#include "absl/status/statusor.h"

namespace bascule::ref {

// `flag` is cpu, cuda (which is cuda:0) or cuda:N, by this process's numbers; or auto: cuda:0 if this build and this
// machine have a GPU, else cpu; `log` gets the choice and its reason. Call it from one thread, before any other use of
// LibTorch: an earlier use would find no GPU, and LibTorch would not look again. With a GPU it takes seconds; float32
// is then computed without TF32. Returns INVALID_ARGUMENT for another word or a number that no GPU here has,
// UNAVAILABLE if there is no driver or GPU, or LibTorch's GPU libraries cannot be opened; the text says which and what
// to do.
absl::StatusOr<c10::Device> open_torch_device(
    std::string_view flag, const std::function<void(std::string_view)>& log = [](std::string_view) {});

}  // namespace bascule::ref
