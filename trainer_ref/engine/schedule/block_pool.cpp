#include <bascule/trainer_ref/engine/schedule/block_pool.h>

#include <algorithm>
#include <utility>

namespace bascule::ref {

BlockPool::BlockPool(std::size_t blocks) : blocks_(blocks) {
  for (std::size_t i = blocks; i-- > 0;) free_.push_back(static_cast<BlockId>(i));  // handed out from 0 up
}

BlockPool::Key BlockPool::key(PrefixId parent, std::span<const std::int64_t> tokens) {
  Key key{parent, {}};
  std::copy_n(tokens.begin(), kBlockTokens, key.tokens.begin());
  return key;
}

std::optional<BlockId> BlockPool::allocate() {
  BlockId id = 0;
  if (!free_.empty()) {
    id = free_.back();
    free_.pop_back();
  } else if (!kept_.empty()) {
    id = kept_.front();
    kept_.pop_front();
    prefixes_.erase(*std::exchange(at(id).published, std::nullopt));
  } else {
    return std::nullopt;
  }
  at(id).holders = 1;
  return id;
}

void BlockPool::retain(BlockId id) {
  Block& block = at(id);
  if (block.holders++ == 0) kept_.erase(block.kept);  // only a kept block can be found without being held
}

void BlockPool::free(BlockId id) {
  Block& block = at(id);
  if (--block.holders > 0) return;
  if (block.published) {
    block.kept = kept_.insert(kept_.end(), id);
  } else {
    free_.push_back(id);
  }
}

std::optional<BlockPool::Match> BlockPool::find(PrefixId parent, std::span<const std::int64_t> tokens) const {
  const auto found = prefixes_.find(key(parent, tokens));
  if (found == prefixes_.end()) return std::nullopt;
  return found->second;
}

PrefixId BlockPool::publish(BlockId id, PrefixId parent, std::span<const std::int64_t> tokens) {
  const auto [entry, inserted] = prefixes_.try_emplace(key(parent, tokens), Match{id, last_prefix_ + 1});
  if (inserted) {
    ++last_prefix_;
    at(id).published = entry->first;
  }
  return entry->second.prefix;
}

void BlockPool::drop_prefixes() {
  for (Block& block : blocks_) block.published.reset();
  free_.insert(free_.end(), kept_.begin(), kept_.end());
  kept_.clear();
  prefixes_.clear();
  ++generation_;
}

}  // namespace bascule::ref
