// Tells whether LibTorch has a GPU; tests check this before they make a tensor. A test that finds none is skipped, and
// counted as skipped.
#pragma once

#include <gtest/gtest.h>

#include <bascule/trainer_ref/program/torch_device.h>

namespace bascule::test {

inline const absl::StatusOr<c10::Device>& torch_gpu() {
  static const absl::StatusOr<c10::Device> device = ref::open_torch_device("cuda");
  return device;
}

}  // namespace bascule::test

#define BASCULE_NEEDS_TORCH_GPU()         \
  if (!::bascule::test::torch_gpu().ok()) \
  GTEST_SKIP() << "needs a GPU with LibTorch for it: " << ::bascule::test::torch_gpu().status().message()
