// A model of an NCCL communicator: an init ends once all ranks have called; a broadcast moves once all ranks have
// posted theirs, which are paired by their order; a rank that is gone or broken stops it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include <bascule/schemes/nccl/messages.h>
#include <bascule/transport/scheme.h>

namespace bascule::inline v0::nccl {

// A rank is named by its worker; the sender's is 0.
class ModelCommunicator {
 public:
  static constexpr std::uint64_t kPiece = 10;

  struct Posted {                        // a broadcast
    std::uint64_t number = 0, from = 0;  // number 0: without data
    std::uint64_t bytes() const { return number == 0 ? kPiece : 47; }
    bool operator==(const Posted&) const = default;
  };

  explicit ModelCommunicator(const std::vector<WorkerId>& workers);  // the sender has called

  bool has(WorkerId rank) const { return ranks_.contains(rank); }
  std::vector<WorkerId> ranks() const;
  bool is_gone(WorkerId rank) const { return ranks_.at(rank).gone; }
  bool is_broken(WorkerId rank) const { return ranks_.at(rank).broken; }
  bool is_busy(WorkerId rank) const;  // it takes part in a broadcast

  void call(WorkerId rank) { ranks_.at(rank).called = true; }  // its init
  bool end_init(WorkerId rank, bool fails = false);            // false: not now. `fails`: even before all have come
  void post(WorkerId rank, const Posted& posted) { ranks_.at(rank).posted.push_back(posted); }
  void leave(WorkerId rank) { ranks_.at(rank).gone = true; }
  void break_rank(WorkerId rank) { ranks_.at(rank).broken = true; }
  std::vector<Posted> fail(WorkerId rank);  // breaks it, and returns its posted broadcasts

  // ---- a broadcast ----

  std::optional<Posted> next(WorkerId rank) const;  // the one that can move there; nullopt: it waits
  bool is_paired(WorkerId rank) const;              // all ranks have posted the same there
  std::uint64_t move(WorkerId rank);                // one piece further; returns the bytes there

 private:
  struct Rank {
    bool called = false, made = false, broken = false, gone = false;
    std::vector<Posted> posted{};
    std::size_t at = 0;       // index of the broadcast under way
    std::uint64_t there = 0;  // of it
  };

  std::map<WorkerId, Rank> ranks_;
};

}  // namespace bascule::inline v0::nccl
