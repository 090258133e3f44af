// Hands out work in order to several threads, which finish it out of order, and tracks how long the complete prefix is.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>

#include <bascule/kernels/thread_pool.h>
#include <bascule/kernels/tiles.h>

namespace bascule::inline v0::kernels {

// Hands out pieces of [0, bytes) in rising order to `hands` threads (at most kMaxHands), each known by a number, its
// hand. If `bytes_done` is given, it receives the length of the complete prefix. Any thread.
class OrderedWork {
 public:
  static constexpr std::size_t kMaxHands = 256;

  OrderedWork(std::uint64_t bytes, std::uint64_t piece_bytes, std::size_t hands, std::atomic<std::uint64_t>* bytes_done)
      : bytes_(bytes), piece_bytes_(piece_bytes), hands_(hands), bytes_done_(bytes_done) {
    begun_.fill(bytes_);
  }

  std::size_t pieces() const { return static_cast<std::size_t>((bytes_ + piece_bytes_ - 1) / piece_bytes_); }

  struct Piece {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };

  // Marks the previous piece of `hand` complete and returns the next one for it, or nullopt when all are taken.
  std::optional<Piece> next(std::size_t hand) {
    // Through the lock, the hand that stores bytes_done sees the other hands' writes, so its release store covers the
    // whole prefix.
    std::lock_guard lock(mutex_);
    const Piece piece{next_, std::min(bytes_, next_ + piece_bytes_)};
    begun_[hand] = piece.begin;
    next_ = piece.end;
    if (bytes_done_ != nullptr) {
      const std::uint64_t done = *std::min_element(begun_.data(), begun_.data() + hands_);
      if (done > stored_) bytes_done_->store(stored_ = done, std::memory_order_release);
    }
    if (piece.begin == bytes_) return std::nullopt;
    return piece;
  }

 private:
  const std::uint64_t bytes_;
  const std::uint64_t piece_bytes_;
  const std::size_t hands_;
  std::atomic<std::uint64_t>* const bytes_done_;
  std::mutex mutex_;
  std::uint64_t next_ = 0;
  std::uint64_t stored_ = 0;
  std::array<std::uint64_t, kMaxHands> begun_;  // where each hand's piece begins; bytes_ without one
};

// Packs or unpacks a slot: each thread calls make_worker() for a worker, which then takes pieces. Returns the digest if
// `want_digest` is true.
template <typename MakeWorker>
std::optional<Digest> in_pieces(std::uint64_t slot_bytes, bool want_digest, ThreadPool& pool,
                                std::atomic<std::uint64_t>* bytes_done, MakeWorker make_worker) {
  const std::size_t hands = std::min(static_cast<std::size_t>(pool.threads()), OrderedWork::kMaxHands);
  OrderedWork work(slot_bytes, piece_bytes_of(slot_bytes, pool.threads()), hands, bytes_done);
  SharedTotal shared;
  // At most as many hands as pieces, because waking a thread costs more than the work on a small slot.
  pool.run(std::min(hands, work.pieces()), [&](std::size_t hand) {
    auto worker = make_worker();
    while (const std::optional<OrderedWork::Piece> piece = work.next(hand)) worker.take(*piece);
    shared.add(worker.total());
  });
  if (!want_digest) return std::nullopt;
  return shared.total().finish(slot_bytes);
}

}  // namespace bascule::inline v0::kernels
