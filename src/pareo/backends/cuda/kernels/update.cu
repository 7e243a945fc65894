// Stochastic gradient descent: velocity = momentum * velocity + gradient + decay * parameter, then
// parameter -= rate * velocity. The results may overwrite the parameter and the velocity.

#include "common.cuh"

extern "C" __global__ void sgd(
    Real* new_parameter, Real* new_velocity, const Real* parameter, const Real* gradient,
    const Real* velocity, const Real* rate, const Real* momentum, const Real* decay, Size count)
{
    const Real r = *rate, m = *momentum, d = *decay;
    for (Size i = first_position(); i < count; i += all_threads()) {
        const Real speed = m * velocity[i] + gradient[i] + d * parameter[i];
        new_parameter[i] = parameter[i] - r * speed;
        new_velocity[i] = speed;
    }
}

// The same, where rate, momentum and decay are arrays that broadcast.
extern "C" __global__ void sgd_walk(
    Real* new_parameter, Real* new_velocity, const Real* parameter, const Real* gradient,
    const Real* velocity, const Real* rate, const Real* momentum, const Real* decay, Size count,
    Walk<3> walk)
{
    for (Size i = first_position(); i < count; i += all_threads()) {
        Size offsets[3];
        locate(walk, (unsigned long long)i, offsets);
        const Real speed
            = momentum[offsets[1]] * velocity[i] + gradient[i] + decay[offsets[2]] * parameter[i];
        new_parameter[i] = parameter[i] - rate[offsets[0]] * speed;
        new_velocity[i] = speed;
    }
}

// Without momentum: parameter - rate * gradient.
extern "C" __global__ void descend(
    Real* new_parameter, const Real* parameter, const Real* rate, const Real* gradient, Size count)
{
    const Real r = *rate;
    for (Size i = first_position(); i < count; i += all_threads())
        new_parameter[i] = parameter[i] - r * gradient[i];
}
