/* Figures for people; declared in summary.h. */
#include "control/summary.h"

const char *format_rate(double per_second, char out[32])
{
    if (per_second >= 1e6)
        snprintf(out, 32, "%.2f M/s", per_second / 1e6);
    else if (per_second >= 1e3)
        snprintf(out, 32, "%.1f k/s", per_second / 1e3);
    else
        snprintf(out, 32, "%.0f /s", per_second);
    return out;
}

const char *format_bytes(double bytes, char out[32])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    size_t unit = 0;
    while (bytes >= 1024 && unit + 1 < ARRAY_COUNT(units)) {
        bytes /= 1024;
        unit++;
    }
    snprintf(out, 32, unit == 0 ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
    return out;
}

const char *format_duration(int64_t microseconds, char out[32])
{
    int64_t seconds = microseconds / US_PER_SECOND;
    if (seconds >= 3600)
        snprintf(out, 32, "%lld:%02lld:%02lld", (long long)(seconds / 3600), (long long)(seconds / 60 % 60),
                 (long long)(seconds % 60));
    else if (seconds >= 60)
        snprintf(out, 32, "%lld:%02lld", (long long)(seconds / 60), (long long)(seconds % 60));
    else
        snprintf(out, 32, "%.1f s", (double)microseconds / 1e6);
    return out;
}

double summary_share_done(const struct run_stats *stats)
{
    if (stats->progress.bytes_total > 0)
        return (double)stats->progress.bytes_done / (double)stats->progress.bytes_total;
    if (stats->progress.records_total > 0)
        return (double)stats->records / (double)stats->progress.records_total;
    return -1;
}
