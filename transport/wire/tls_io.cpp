#include <bascule/transport/wire/tls_io.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

namespace bascule::inline v0 {
namespace {

constexpr std::size_t kRecordBytes = 16u << 10;  // TLS's maximum

}  // namespace

Transferred feed_some(int socket, TlsSession& tls) {
  std::array<std::uint8_t, kRecordBytes> bytes;
  std::vector<UniqueFd> descriptors;  // unused: TCP carries none
  Transferred came = receive_some(socket, bytes, descriptors);
  if (came.error == 0 && !tls.feed(std::span(bytes).first(came.bytes)).ok()) came.error = kTlsFailed;
  return came;
}

int flush(int socket, TlsSession& tls) {
  for (std::span<const std::uint8_t> output = tls.output(); !output.empty(); output = tls.output()) {
    const iovec piece{.iov_base = const_cast<std::uint8_t*>(output.data()), .iov_len = output.size()};
    const Transferred sent = send_some(socket, {&piece, 1}, {});
    if (sent.error != 0) return sent.error;
    tls.sent(sent.bytes);
  }
  return 0;
}

Transferred receive_some(int socket, TlsSession& tls, std::span<std::uint8_t> bytes) {
  for (;;) {
    const absl::StatusOr<TlsSession::Read> read = tls.read(bytes);
    if (!read.ok()) return {.error = kTlsFailed};
    if (read->bytes > 0 || read->ended) return {.bytes = read->bytes};
    const Transferred came = feed_some(socket, tls);
    if (came.error != 0 || came.bytes == 0) return came;
  }
}

Transferred send_some(int socket, TlsSession& tls, std::span<const iovec> pieces) {
  if (const int error = flush(socket, tls); error != 0) return {.error = error};
  // The pieces go into one record, so that a frame's header does not travel alone.
  std::array<std::uint8_t, kRecordBytes> record;
  std::size_t size = 0;
  for (const iovec& piece : pieces) {
    const std::size_t more = std::min(piece.iov_len, record.size() - size);
    if (more > 0) std::memcpy(record.data() + size, piece.iov_base, more);
    size += more;
  }
  if (!tls.write(std::span(record).first(size)).ok()) return {.error = kTlsFailed};
  if (const int error = flush(socket, tls); error != 0 && error != EAGAIN) return {.error = error};
  return {.bytes = size};
}

}  // namespace bascule::inline v0
