//! Devices by name, chosen at run time among the backends that were built in.

use attentive_kernels::{simd, threads};
use burn::tensor::Device;

/// Why a device cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum DeviceError {
    /// No backend has this name.
    #[error("there is no device `{name}`; the devices are {}", device_names().join(", "))]
    Unknown {
        /// The requested name.
        name: String,
    },
    /// The backend exists but is not part of this build.
    #[error("device `{name}` is not in this build; build with `--features {name}` to use it")]
    NotBuilt {
        /// The requested name, which is also the cargo feature's name.
        name: String,
    },
    /// The backend is built in but finds no such hardware.
    #[error("device `{name}` is built in, but this machine has no such device; use `cpu`")]
    Absent {
        /// The requested name.
        name: String,
    },
}

/// Every device name, whether built in or not.
pub fn device_names() -> Vec<&'static str> {
    vec!["cpu", "cuda", "metal", "rocm", "vulkan", "webgpu"]
}

/// The device of this name, without autodiff.
pub fn device(name: &str) -> Result<Device, DeviceError> {
    match name {
        "cpu" => Ok(Device::flex()),
        #[cfg(feature = "cuda")]
        "cuda" => present(name, burn::tensor::DeviceType::Cuda),
        #[cfg(feature = "metal")]
        "metal" => present(name, burn::tensor::DeviceType::Metal),
        #[cfg(feature = "rocm")]
        "rocm" => present(name, burn::tensor::DeviceType::Rocm),
        #[cfg(feature = "vulkan")]
        "vulkan" => present(name, burn::tensor::DeviceType::Vulkan),
        #[cfg(feature = "webgpu")]
        "webgpu" => present(name, burn::tensor::DeviceType::WebGpu),
        name if device_names().contains(&name) => Err(DeviceError::NotBuilt {
            name: name.to_owned(),
        }),
        name => Err(DeviceError::Unknown {
            name: name.to_owned(),
        }),
    }
}

#[cfg(any(
    feature = "cuda",
    feature = "metal",
    feature = "rocm",
    feature = "vulkan",
    feature = "webgpu"
))]
fn present(name: &str, kind: burn::tensor::DeviceType) -> Result<Device, DeviceError> {
    Device::enumerate(kind)
        .into_vec()
        .into_iter()
        .next()
        .ok_or_else(|| DeviceError::Absent {
            name: name.to_owned(),
        })
}

/// Sets the number of threads of the CPU kernels, instead of `ATTENTIVE_THREADS`; whether it could: no kernel has run yet.
pub fn set_threads(count: usize) -> bool {
    threads::set_count(count)
}

/// Validates the environment variables of the CPU kernels (`ATTENTIVE_THREADS`, `ATTENTIVE_SIMD`).
///
/// Kernels panic on an invalid one, so a program should check first.
pub fn check_environment() -> Result<(), String> {
    threads::from_environment()?;
    simd::from_environment()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_is_always_there_and_other_names_say_what_to_do() {
        assert!(device("cpu").is_ok());
        let message = device("tpu").unwrap_err().to_string();
        assert!(message.contains("cpu, cuda"), "{message}");
        if cfg!(not(feature = "cuda")) {
            let message = device("cuda").unwrap_err().to_string();
            assert!(message.contains("--features cuda"), "{message}");
        }
    }
}
