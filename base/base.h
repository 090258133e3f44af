// Base: weights that never change, in one copy of memory that all processes of a host map read-only: the frozen base
// model of adapters, which a trainer and its engines share.
//
//   trainer                        engine                         engine
//   open(fill) ── makes the base   open() ── joins                open() ── joins
//     Sender: answers newcomers      Receiver: keeps the memory     Receiver: keeps the memory
//     ✗ dies                         takes the endpoint over ─────▶ joins this process
//
// The process that finds no base makes one: `fill` writes it, and after that nothing can write it. Each process keeps
// the memory's descriptor. If the one that answers newcomers ends, in whatever way, another takes the endpoint over
// with the memory that it has. So the base lives, and can be joined, as long as any process has it open.
//
// To the outside the endpoint is like any other, with one version: a Receiver may read it, and bascule-status shows it.
//
// Threads: open() blocks its caller. A thread of the object answers the sender, and takes the endpoint over. Calls from
// any thread. After a fork, the child must not use the object, and must not read the memory.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include <bascule/base/options.h>
#include <bascule/transport/held_version.h>
#include <bascule/transport/tensor.h>

namespace bascule::inline v0 {

class Base {
 public:
  // Joins the base at the endpoint, or makes it. Processes that open it at the same time take turns, so that one of
  // them makes it. Returns FAILED_PRECONDITION if the base there has another key, weights, digest or tensors, or if an
  // ordinary sender has the endpoint; DEADLINE_EXCEEDED says for whom it waited; errors of `fill`, after which another
  // process may make the base; and errors of Sender::listen() and Receiver::connect().
  static absl::StatusOr<Base> open(BaseOptions options);

  Base(Base&&) noexcept;
  Base& operator=(Base&&) noexcept;
  ~Base();  // the memory stays mapped while a copy of held().memory lives

  // The base as this process maps it. Does not change, even if other processes end.
  const HeldVersion& held() const;
  // Its tensors, in the order of their names, as long as this object lives.
  std::span<const TensorView> tensors() const;
  const TensorView* find(std::string_view name) const;  // null if there is none

  bool made_here() const;  // whether open() called `fill`
  bool answers() const;    // whether newcomers now join at this process

 private:
  struct Impl;
  explicit Base(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace bascule::inline v0
