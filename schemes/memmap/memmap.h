// memmap: slots are files, and outlive every process. A slot is a .safetensors file whose data begins on a page. The
// trainer packs into its mapping and readers map it, so nothing is delivered or copied. manifest.json, replaced by
// rename, lists the whole versions. A reader needs no trainer. With durable=on a version survives a loss of power.
// schemes/memmap/README.md gives the order of locks, stamps, renames and syncs, and says which version survives what.
//
//   <folder>/manifest.json                        the whole versions, the newest first
//            newest/model.safetensors             a link to the file of the newest version
//            slot-<epoch>-<index>.safetensors     a file for each slot; never resized or renamed; read-only by its name
//
// Other readers (Python's safetensors) may rely on this: the file that the manifest names first, or the link, holds
// that version until the version after the next begins. Such a reader takes no lock: it copies, reads the manifest
// again, and starts again if that file now has another version or none. Files that the manifest does not name hold no
// version.
#pragma once

#include <bascule/schemes/memmap/folder.h>
#include <bascule/transport/scheme.h>

namespace bascule::inline v0 {

Scheme memmap_scheme(memmap::FileObserver observer = {});

}  // namespace bascule::inline v0
