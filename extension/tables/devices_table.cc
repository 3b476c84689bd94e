// lm_devices: the processors that models could run on, and why one cannot be used
//
//   SELECT device, name, usable, reason FROM lm_devices;
//   SELECT device, read_bytes_per_second / 1e9 AS "GB/s" FROM lm_devices WHERE device = 'cpu';
//
// device is what the setting and the option of that name take. features are a CPU's instruction set
// as the kernels use it, or a GPU's compute capability; threads as many as this process may use.
// The ceilings of the CPU are measured once, for a quarter of a second, when a statement first asks
// for one of them: read_bytes_per_second from memory, fp32_flops_per_second and int8_ops_per_second
// of its multipliers (a multiply and an add are two). A busy machine gives lower ones.
#include <optional>
#include <string>

#include "engine/backend/registry.h"
#include "engine/base/status_macros.h"
#include "extension/binding/snapshot_table.h"
#include "extension/connection/await.h"
#include "extension/tables/tables.h"

namespace lm {
namespace {

class DevicesTable : public SnapshotTable {
 public:
  using SnapshotTable::SnapshotTable;

  const char* name() const override { return "lm_devices"; }
  std::string Schema() const override {
    return "CREATE TABLE lm_devices(device TEXT, name TEXT, features TEXT, threads INTEGER, "
           "memory_bytes INTEGER, usable INTEGER, reason TEXT, read_bytes_per_second REAL, "
           "fp32_flops_per_second REAL, int8_ops_per_second REAL)";
  }

  absl::StatusOr<std::vector<SnapshotRow>> Rows() override { return RowsFor(~uint64_t{0}); }

  absl::StatusOr<std::vector<SnapshotRow>> RowsFor(uint64_t used) override {
    std::optional<MachineCeilings> ceilings;
    if (used >> kFirstCeiling != 0) {
      ASSIGN_OR_RETURN(ceilings, AwaitCeilings(connection().db()));
    }
    std::vector<SnapshotRow> rows;
    for (const DeviceInfo& device : ListDevices()) {
      SnapshotRow row = {static_cast<int64_t>(rows.size()) + 1,
                         {device.device, TextOrNull(device.name), TextOrNull(device.features),
                          CountOrNull(device.threads), CountOrNull(device.memory_bytes),
                          int64_t{device.unusable.empty()}, TextOrNull(device.unusable)}};
      const bool measured = ceilings.has_value() && device.device == "cpu";
      row.cells.push_back(measured ? RateOrNull(ceilings->read_bytes_per_second) : Cell());
      row.cells.push_back(measured ? RateOrNull(ceilings->fp32_flops_per_second) : Cell());
      row.cells.push_back(measured ? RateOrNull(ceilings->int8_ops_per_second) : Cell());
      rows.push_back(std::move(row));
    }
    return rows;
  }

 private:
  static constexpr int kFirstCeiling = 7;  // column

  static Cell TextOrNull(const std::string& text) { return text.empty() ? Cell() : Cell(text); }
  static Cell CountOrNull(int64_t count) { return count == 0 ? Cell() : Cell(count); }
  static Cell RateOrNull(double rate) { return rate == 0 ? Cell() : Cell(rate); }
};

}  // namespace

int RegisterDevices(const std::shared_ptr<Connection>& connection) {
  return RegisterReadOnlyTable(connection, "lm_devices", &MakeTable<DevicesTable>);
}

}  // namespace lm
