#include <bascule/receiver/verifier.h>

#include <algorithm>

#include <bascule/kernels/control_group.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

std::string name_of(const Publication& publication) {
  return cat("slot ", publication.slot.index, " of version ", publication.version);
}

}  // namespace

Verifier::Verifier() : reader_(std::clamp(kernels::usable_cores() / 4, 1, 4)) {}

absl::Status Verifier::check_record(const Attachment& attachment, const Publication& publication) const {
  const std::optional<SlotRecord> record = attachment.record(publication.slot);
  if (!record) return absl::OkStatus();
  if (record->version != publication.version || record->bytes_done < publication.bytes)
    return absl::DataLossError(cat(name_of(publication), ": the control page says version ", record->version, " with ",
                                   record->bytes_done, " bytes, expected version ", publication.version, " with ",
                                   publication.bytes));
  if (publication.digest && record->digest != publication.digest)
    return absl::DataLossError(cat(name_of(publication), ": the control page says digest ",
                                   record->digest ? to_hex(*record->digest) : "none", ", sealed was ",
                                   to_hex(*publication.digest)));
  return absl::OkStatus();
}

absl::Status Verifier::verify(const Attachment& attachment, const Publication& publication, const SlotView& view,
                              bool digest_pass, Deadline deadline) {
  BASCULE_TRY(check_record(attachment, publication));
  if (attachment.record(publication.slot) && !digest_pass && !view.digest) return absl::OkStatus();
  return verify_bytes(publication, view, deadline);
}

absl::Status Verifier::verify_bytes(const Publication& publication, const SlotView& view, Deadline deadline) {
  if (!publication.digest) return absl::OkStatus();
  if (view.digest) return check_digest(publication, *view.digest);
  BASCULE_ASSIGN(const Digest found, reader_.digest(view, deadline));
  return check_digest(publication, found);
}

absl::Status Verifier::verify_parts(const PartCheck& parts, const Layout& layout, const Publication& publication,
                                    const SlotView& view, Deadline deadline) {
  if (view.device == kHost) return parts.check(publication, layout, view, pool());
  BASCULE_ASSIGN(const auto found, reader_.totals(view, parts.tiles, deadline));
  return parts.check(publication, layout, found);
}

absl::StatusOr<std::vector<ByteRange>> Verifier::wrong_tiles(const DigestTable& table, const Publication& publication,
                                                             const SlotView& view, Deadline deadline) {
  const ByteRange all{0, publication.bytes};
  if (view.device == kHost)
    return bascule::wrong_tiles({.bytes = publication.bytes}, table, {&all, 1}, view.bytes, pool());
  const auto tiles = std::make_shared<const CheckedTiles>(
      CheckedTiles{.ranges = {all}, .is_checked = std::vector<std::uint8_t>(table.size(), 1), .bytes = {}});
  BASCULE_ASSIGN(const auto found, reader_.totals(view, tiles, deadline));
  return unequal_tiles(table, {&all, 1}, found, publication.bytes);
}

absl::Status check_digest(const Publication& publication, const Digest& found) {
  if (found == publication.digest) return absl::OkStatus();
  return absl::DataLossError(cat(name_of(publication), ": digest ", to_hex(found), ", sealed was ",
                                 to_hex(*publication.digest), "; its bytes changed after they were sealed"));
}

}  // namespace bascule::inline v0
